// Package gitlab talks to one GitLab: it lists jobs, reads runners and asks for jobs
// as a runner does.
//
// Two kinds of calls, two kinds of tokens. The calls of an API token (Jobs, Job,
// Pipeline, Runner, Ancestors, Check) read; they share one budget a minute, and what
// they return is whole or an error: a page that can't be read, a cap on pages and a
// right that is missing are errors, never shorter lists. That matters more than
// anything else here, since the caller takes an empty list for "nothing to do".
// GitLab itself does not always say so: asked for all jobs of the instance by
// somebody who is no administrator, it answers with an empty list; Jobs proves the
// right before it believes one.
//
// The calls of a runner token or a job token (RequestJob, KeepPending, FailJob,
// Verify) act for one runner or one job, and their pace is the caller's.
//
// The package remembers no job and decides nothing. It has no retry of its own,
// except inside a list: one failed page of a thousand would throw away the rest.
// Tokens are read anew for each call, so a file may be rewritten under it; they are
// in no error, and the types that hold one print a mask instead.
package gitlab
