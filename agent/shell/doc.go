// Package shell runs one job's script with /bin/sh and leaves nothing behind.
//
// [Run] gives the script a private directory with an unpredictable name, a
// process group of its own, an environment that holds nothing of this process,
// and a time limit. When the script has ended, for whatever reason, Run ends what
// the script left running and deletes the directory before it returns.
//
// It runs on Linux, whose process groups, pidfds and /proc it needs for that.
//
// It knows nothing of routers, attempts and results: that is package agent's. It
// is no sandbox either: a script runs with the rights of the process that calls
// Run, and can reach what that user can reach.
package shell
