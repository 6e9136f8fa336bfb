// Package tunnel is a machine's side of a session with a job that runs on it: a command
// in the job's place, a TCP port on the machine's loopback, a unix socket that the job has
// made.
//
// The machine opens the tunnel to its router, on the connection that it has; it listens on
// nothing. What a slow reader leaves unread holds up the one tunnel: nothing is kept
// beyond one piece in each direction and what gRPC and the kernel hold.
//
// Who may do this, for how long and how much, is decided at the router. The package ends
// a session when the job ends, whatever the router says.
package tunnel
