// Package gitlabtest is a stateful stand-in for a GitLab: what a runner, a job
// router and a client of the API can see of one.
//
// [Server] is an [http.Handler]. A test sets it up ([Server.AddProject],
// [Server.AddRunner], [Server.Enqueue] …), lets the code under test talk to it over
// HTTP, and then asks what came of it: [Server.Job] for a job, [Server.Calls] for
// who asked what and when. [Fault] makes it slow, wrong or silent.
//
// Jobs go the way that they go in GitLab: a runner that says two_phase_job_commit
// gets a job that stays pending until PUT state=running; state=pending keeps it;
// any other state is refused with 400 meanwhile, so that a job can't be failed
// before it has been begun. A job that nobody acknowledges in time fails with
// runner_provisioning_timeout and GitLab retries it as a new job with a new id
// ([JobView.RetriedAs]). GitLab takes the system_id of the request, not that of the
// machine which says running, for the machine that runs the job: PUT has none.
//
// Nothing happens in the background, but for webhooks: what is due by the clock is
// done when the next call comes, or [Server.Wait] looks. The clock can be put
// forward ([Server.Advance]).
//
// The package knows GitLab's wire and nothing of Spillway's own packages for it, so
// that both can't be wrong in the same way. What it does not model it refuses: an
// unknown path is 404, an unknown GraphQL field an error. Behaviour that other code
// relies on names its source: the runner API is GitLab's lib/api/ci/runner.rb, states are
// app/services/ci/update_build_state_service.rb and retry_waiting_job_service.rb,
// GraphQL is app/graphql/types/ci.
package gitlabtest
