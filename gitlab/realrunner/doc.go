// Package realrunner runs a real gitlab-runner for tests: the one that
// GITLAB_RUNNER_BIN names.
//
// Its own tests hold package minirunner, which stands in for it everywhere else,
// against the real one: both have to say the same on the wire.
package realrunner
