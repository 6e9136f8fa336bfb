// Package play is what the examples with a GitLab have in common: a stand-in of GitLab
// on a loopback port, a real control plane beside it as a process of its own, jobs that
// are pushed in waves, and a table of what comes of them. Whatever it starts ends with
// it.
package play
