package migstub

import (
	"fmt"
	"slices"
	"time"
)

// What Google's own operations are called in the list of operations
// (compute/docs/instances/create-use-spot, …/instance-groups/autohealing-instances-in-migs,
// …/instances/monitor-plan-host-maintenance-event).
const (
	opPreempted  = "compute.instances.preempted"
	opRepaired   = "compute.instances.repair.recreateInstance"
	opMigrated   = "compute.instances.migrateOnHostMaintenance"
	opTerminated = "compute.instances.terminateOnHostMaintenance"
)

// maxOperations is how many operations are remembered, the newest [operations].
const maxOperations = 10_000

// operation is one long running operation.
type operation struct {
	id          uint64
	name, kind  string
	zone        string // where it is: a zone,
	region      string // a region, or neither = global
	target      string // path of the resource, from projects/ on
	targetID    uint64
	requestID   string
	insertedAt  time.Time
	startedAt   time.Time // running from then on
	doneAt      time.Time
	done        bool
	system      bool
	errCode     string
	errMessage  string
	group       *group                   // whose stability it disturbs
	apply       func(at time.Time) error // what it does when it is done
	plannedFail string                   // the code that a fault makes it end with
}

type operations struct {
	all       []*operation // by insertion, the newest maxOperations
	open      []*operation // those not done, by insertion
	byRequest map[requestKey]*operation
}

// requestKey is what makes a request the same as an earlier one. The size of a
// resize is not part of it: an id that comes again is ignored, whatever else the
// request says (requestId).
type requestKey struct{ requestID, kind, target string }

func newOperations() operations { return operations{byRequest: make(map[requestKey]*operation)} }

func (o *operations) remember(op *operation) {
	o.all = append(o.all, op)
	if op.requestID != "" {
		o.byRequest[requestKey{op.requestID, op.kind, op.target}] = op
	}
	if len(o.all) > maxOperations {
		first := o.all[0]
		delete(o.byRequest, requestKey{first.requestID, first.kind, first.target})
		o.all = o.all[1:]
	}
}

// newOperation makes an operation that takes as long as the faults say.
func (c *Cloud) newOperation(now time.Time, kind string) *operation {
	op := &operation{
		id: c.newID(), kind: kind, insertedAt: now,
		startedAt: now.Add(c.faults.Operations.Pending),
	}
	op.doneAt = op.startedAt.Add(c.faults.Operations.Running)
	op.name = fmt.Sprintf("operation-%d-%013x-%08x-%08x", now.UnixMilli(), c.rng.Uint64()>>12, c.rng.Uint32(), c.rng.Uint32())
	return op
}

// insert adds it to what will be done, or does it if it takes no time.
func (c *Cloud) insert(now time.Time, op *operation) {
	c.due.known = false
	c.operations.remember(op)
	if op.group != nil {
		op.group.changesOpen++
	}
	c.operations.open = append(c.operations.open, op)
	if !op.doneAt.After(now) {
		c.finish(op)
	}
}

// finish does what the operation is about.
func (c *Cloud) finish(op *operation) {
	op.done = true
	c.operations.open = slices.DeleteFunc(c.operations.open, func(o *operation) bool { return o == op })
	if op.group != nil {
		op.group.changesOpen--
	}
	switch {
	case op.plannedFail != "":
		op.errCode, op.errMessage = op.plannedFail, "planned fault"
	case op.apply != nil:
		if err := op.apply(op.doneAt); err != nil {
			op.errCode, op.errMessage = errInvalidRequest, err.Error()
		}
	}
}

// errInvalidRequest is the code of an operation that fails because of what it
// names. Google does not document the code.
const errInvalidRequest = "INVALID_ARGUMENT"

func (op *operation) status(now time.Time) string {
	switch {
	case op.done:
		return "DONE"
	case now.Before(op.startedAt):
		return "PENDING"
	default:
		return "RUNNING"
	}
}

// systemOperation is the cloud's own doing, to be seen in the list of operations.
func (c *Cloud) systemOperation(now time.Time, vm *machine, kind string) {
	op := &operation{
		id: c.newID(), kind: kind, insertedAt: now, startedAt: now, doneAt: now, done: true, system: true,
		zone: vm.zone, target: c.instancePath(vm.zone, vm.name), targetID: vm.id,
	}
	prefix := "systemevent"
	if kind == opRepaired {
		prefix = "repair"
	}
	op.name = fmt.Sprintf("%s-%d-%013x-%08x-%08x", prefix, now.UnixMilli(), c.rng.Uint64()>>12, c.rng.Uint32(), c.rng.Uint32())
	c.operations.remember(op)
}
