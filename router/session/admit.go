package session

import (
	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// maxSorted bounds the classes of which it is remembered whether they need admission
// [classes]: as many as the store knows, twice.
const maxSorted = 20_000

// Admission is what a dispatcher has to know of admission control. It decides nothing
// about it: jobs that need approval are not there for it until they have it. Its methods
// are called by the dispatcher's goroutine and must not wait.
type Admission interface {
	// Sort moves the jobs of a class that first need approval from Pending to Unadmitted.
	Sort(c router.ClassCount) router.ClassCount
	// Waiting is told the whole queue, sorted, and Pushed what has just come in.
	Waiting(counts []router.ClassCount)
	Pushed(c router.ClassCount)
	// Dispatched is told of a job that goes to a machine.
	Dispatched(job *spillway.Job)
}

// sortCounts takes what needs approval out of a picture of the queue.
func (d *Dispatcher) sortCounts(counts []router.ClassCount) {
	if d.opt.Admission == nil {
		return
	}
	for i := range counts {
		counts[i] = d.sorted(counts[i])
	}
	d.opt.Admission.Waiting(counts)
}

// sorted remembers whether a class needs approval, for the claims on it.
func (d *Dispatcher) sorted(c router.ClassCount) router.ClassCount {
	probe := d.opt.Admission.Sort(router.ClassCount{Requirement: c.Requirement, Pending: 1})
	if d.admitted == nil || len(d.admitted) >= maxSorted {
		d.admitted = make(map[spillway.JobClass]bool)
	}
	d.admitted[c.Class] = probe.Pending > 0
	return d.opt.Admission.Sort(c)
}

// pushedHere tells the engine of new jobs, unless somebody has to approve them first.
func (d *Dispatcher) pushedHere(c router.ClassCount) {
	if d.opt.Admission != nil {
		c = d.sorted(c)
		d.opt.Admission.Pushed(c)
	}
	d.engine.AddPending(c)
}

// admittedOnly marks the wants of classes that need approval. One that is not known is
// taken to need it: its jobs are counted, and sorted, before long.
func (d *Dispatcher) admittedOnly(wants []router.ClaimWant) {
	if d.opt.Admission == nil {
		return
	}
	for i := range wants {
		wants[i].AdmittedOnly = !d.admitted[wants[i].Class]
	}
}

// dispatched tells admission's observers of a job that goes to a machine.
func (d *Dispatcher) dispatched(job *spillway.Job) {
	if d.opt.Admission != nil {
		d.opt.Admission.Dispatched(job)
	}
}
