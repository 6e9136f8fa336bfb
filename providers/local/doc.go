// Package local is the provider whose instances are processes on this machine: of
// spillway-agent, or of any command, such as a gitlab-runner with or without
// spillway-agent --sidecar beside it. It is for a first try, for demonstrations and for
// tests of the whole, with real boots, real drains and real ends but without a cloud.
//
// It behaves like an autoscaling group. An instance that is asked for is
// "creating" for boot_delay, then its process starts. Removing one by name sends
// SIGTERM to its process group (stop_signal to a command's process, and to nothing that
// it has started) and SIGKILL after stop_grace; it is "deleting" until
// the last of its processes is gone, those of its jobs too. An instance that ends
// by itself, whatever its exit code, leaves the group's desired number as it was
// and is therefore replaced after boot_delay; where one ended within a second of
// its start, the replacement waits longer each time, so that a broken agent
// doesn't become a storm of starts.
//
// An instance of a command that asks for {metrics_port} has an address: a loopback port
// of its own, at which the control plane finds the command's metrics.
//
// In one thing it is unlike a cloud: instances end with the plugin, in [Provider].Close
// and, by the kernel, when the plugin dies.
//
// It runs on Linux, whose process groups, parent-death signals and /proc it needs.
package local
