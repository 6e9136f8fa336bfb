package migstub

import (
	"slices"
	"time"
)

// SetSizeExternally is somebody else resizing the group. It returns the size
// before; a group that is not there has none.
func (c *Cloud) SetSizeExternally(group string, size int) (before int) {
	c.change(func(now time.Time) {
		if g := c.group(group); g != nil {
			before = g.target
			c.resize(now, g, size, BySomebody)
		}
	})
	return before
}

// DeleteInstanceExternally is somebody deleting the machine itself, past its
// group, which makes another of the same name unless its lifecycle rules forbid
// it. It reports whether there was such an instance.
func (c *Cloud) DeleteInstanceExternally(nameOrID string) bool {
	return c.withMachine(nameOrID, func(now time.Time, vm *machine) { c.lose(now, vm, BySomebody) })
}

// Preempt is the cloud taking the instance back at now + notice; its group tries
// to make another of the same name.
func (c *Cloud) Preempt(nameOrID string, notice time.Duration) bool {
	return c.withMachine(nameOrID, func(now time.Time, vm *machine) {
		vm.preemptAt = now.Add(notice)
		ch := vm.change(now, Notice)
		ch.Deadline = vm.preemptAt
		c.tell(ch)
	})
}

// Maintenance is work on the host of the instance. It moves with nobody noticing
// where its template says MIGRATE; TERMINATE ends it, and its group makes another.
func (c *Cloud) Maintenance(nameOrID string) bool {
	return c.withMachine(nameOrID, func(now time.Time, vm *machine) {
		if vm.group.Template.OnHostMaintenance == "MIGRATE" {
			c.systemOperation(now, vm, opMigrated)
			return
		}
		c.systemOperation(now, vm, opTerminated)
		c.lose(now, vm, Maintenance)
	})
}

// Recreate is autohealing, or somebody with recreateInstances: the same name, a
// new id.
func (c *Cloud) Recreate(nameOrID string) bool {
	return c.withMachine(nameOrID, func(now time.Time, vm *machine) {
		if m := c.memberOf(vm); m != nil && m.action != actDeleting {
			c.systemOperation(now, vm, opRepaired)
			c.recreate(now, m, ByRepair)
		}
	})
}

// AttachAutoscaler makes an autoscaler target the group; nil detaches it.
func (c *Cloud) AttachAutoscaler(group string, a *Autoscaler) {
	c.change(func(time.Time) {
		if g := c.group(group); g != nil {
			g.Autoscaler = a
			g.revision++
		}
	})
}

// withMachine runs f on a machine that has not ended; false if there is none.
func (c *Cloud) withMachine(nameOrID string, f func(now time.Time, vm *machine)) (ok bool) {
	c.change(func(now time.Time) {
		all := c.machines()
		i := slices.IndexFunc(all, func(vm *machine) bool {
			return vm.stoppedAt.IsZero() && (vm.name == nameOrID || vm.idText() == nameOrID)
		})
		if ok = i >= 0; ok {
			f(now, all[i])
		}
	})
	return ok
}
