// Package admission decides which controllers have to approve a job, in which order
// they are asked, and what their verdicts and their silence mean.
//
// [Policy] is the configuration: which controllers a requirement needs. It is a
// function of the job's class, so that a class needs admission or does not as a whole.
// [Engine] is one replica's book of jobs under review, of the instances of controllers
// that are connected to it, and of the reviews that they were sent.
//
// A job needs every controller's approval: those of the instance first, then those of
// its groups, then those of its project; within a scope, in the order of the
// configuration. One refusal ends it. A controller that is asked and stays silent for
// its deadline, or that has been out for as long, fails it. A dry_run controller is
// asked and not obeyed.
//
// The package is a core: it has no clock, no goroutine and no stream. It will not
// claim jobs or write what became of them: package admission/session does.
package admission
