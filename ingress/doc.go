// Package ingress lets a person who may reach into the environment of a running job: a
// command in it, a port on its loopback, a unix socket that it has made.
//
// [Service] is one replica's. It finds the machine that runs the job, has that machine open
// a tunnel over the connection that it already has (package router/session does), and joins
// the two ends. Where the machine is connected to another replica, that one is asked to do
// so, and this one carries the bytes. Nothing is kept of them but their number.
//
// Each session is bounded in idle time, duration, bytes and number, and is in the audit at
// its opening and at its end. Who may begin one is package access's business; the Service
// asks for the role anyway, since a mistake in a rule must not open a job to everybody.
//
// Replicas trust each other by what only they can do: write to the store. The one that a
// person has called shows the other, through the store, whom it lets in and to which job;
// the ticket for that is for one use and a few seconds. Certificates come on top where TLS
// is configured.
package ingress
