// Package sidecartest is a stand-in for gitlab-runner in tests of what runs beside one:
// the test's own binary, started again as a process that serves a runner's metrics,
// stops as a runner does (SIGQUIT: at the end of its jobs; SIGTERM: at once), and has as
// many jobs as the test says. It runs none.
package sidecartest
