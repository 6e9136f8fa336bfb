// Package minirunner is a small GitLab Runner for tests: on the wire it does what
// gitlab-runner 19.4 does, and little else.
//
// It looks for its Job Router and remembers the answer, a failure too, for an hour;
// asks the router by GetJob over grpc, grpcs, ws or wss, or GitLab by POST
// /jobs/request; echoes last_update; makes no call while it has no free place; goes
// around a router that fails (a circuit breaker) or that says Unimplemented; and
// turns itself off for an hour after three unhealthy answers in a row. Jobs are run
// with sh, for real: PUT running, the trace by PATCH, and PUT of the end.
//
// The times are those of gitlab-runner; [Times.Scaled] shortens them.
//
// It fetches no sources, caches nothing, uploads no artifacts and isolates nothing.
package minirunner
