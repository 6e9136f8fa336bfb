package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
)

// requireFenced: every write so far is of the killed control plane or of one before
// it, each after the ones of its predecessor.
func (k *killing) requireFenced() {
	k.t.Helper()
	life := 1
	for _, a := range k.gate.arrivals() {
		for a.who != fmt.Sprintf("life-%d", life) {
			life++
			require.LessOrEqual(k.t, life, k.started, "a write of an orphan: %s by %s", a.op, a.who)
		}
	}
}

// awaitAgreement: two reconciles after the last change the service, our records and
// the desired number agree, to the instance. An instance that ended while nobody was
// there to see its stream end is on record for as long as its machine may be silent.
func (k *killing) awaitAgreement() {
	k.t.Helper()
	const reconciles = 2
	looks, changed := k.cloud.CountOf(describe), k.changes()
	for {
		// How many looks there were is counted before what they must have led to is read, and
		// a machine is forgotten after its instance is: this order bears any pause of ours.
		seen := k.cloud.CountOf(describe) - looks
		heard, recorded := k.heard(), k.onRecord()
		real, counted := k.inCloud()
		recorded.instances = slices.DeleteFunc(recorded.instances, func(id string) bool {
			return heard[id] && !slices.Contains(real.instances, id)
		})
		if real.desired == counted && recorded.desired == real.desired && slices.Equal(recorded.instances, real.instances) {
			return
		}
		// One look may have been under way, and the records are written after a look.
		if now := k.changes(); now != changed {
			looks, changed = k.cloud.CountOf(describe), now
		} else if seen > 1+reconciles+1 {
			require.FailNow(k.t, "no agreement", "after %d looks: real %v with %d that count, on record %v\n%v", seen, real, counted, recorded, k.replica.err)
		}
		<-time.After(poll)
	}
}

// changes counts what has changed in the cloud, and what was to change it.
func (k *killing) changes() int {
	n := len(k.gate.arrivals())
	for _, in := range k.cloud.Instances(linux) {
		if n++; !in.EndedAt.IsZero() {
			n++
		}
	}
	return n
}

// asked is how many instances were asked for so far, whether they came or not, and how
// many somebody ended.
func (k *killing) asked() (n, gone int) {
	for {
		all := k.cloud.Instances(linux)
		g, _ := k.cloud.Group(linux)
		if len(k.cloud.Instances(linux)) != len(all) {
			continue // one came meanwhile: it would count twice
		}
		for _, in := range all {
			if in.Cause == asgstub.BySomebody {
				gone++
			}
		}
		return len(all) + g.Outstanding, gone
	}
}

// requireOneLaunchEach: since the last round one instance at most was asked for each job.
// One that somebody ends is replaced by the group, and again for its job, which is missed
// later.
func (k *killing) requireOneLaunchEach(jobs int) {
	k.t.Helper()
	now, gone := k.asked()
	require.LessOrEqual(k.t, now-k.before, jobs+2*(gone-k.gone), "more instances were launched than there were jobs\n%v", k.replica.err)
	k.before, k.gone = now, gone
}

// heard are the instances whose machines have a stream, as far as the records know.
func (k *killing) heard() map[string]bool {
	k.t.Helper()
	machines, err := k.records().Machines(k.t.Context())
	require.NoError(k.t, err)
	heard := map[string]bool{}
	for i := range machines {
		if machines[i].Connected {
			heard[machines[i].InstanceID] = true
		}
	}
	return heard
}

// requireRunOnce: each job ran once and to its end, but for those that somebody
// canceled. One whose instance was lost may run again.
func (k *killing) requireRunOnce(ids []string) {
	k.t.Helper()
	ended, executions := k.ended(), map[string]int{}
	for _, r := range k.diary.runs() {
		if !r.ended && ended[r.instance] == asgstub.BySomebody {
			continue
		}
		executions[r.job]++
		require.True(k.t, r.ended || k.canceled[r.job], "job %s was cut short on instance %s (%s)", r.job, r.instance, ended[r.instance])
	}
	for _, id := range ids {
		if k.canceled[id] {
			require.LessOrEqual(k.t, executions[id], 1, "executions of the canceled job %s", id)
		} else {
			require.Equal(k.t, 1, executions[id], "executions of job %s", id)
		}
	}
}

// requireNamed looks at all that came to the cloud: desired was lowered only to what
// existed, and instances ended only by name and without a job.
func (k *killing) requireNamed() {
	k.t.Helper()
	for _, a := range k.gate.arrivals() {
		switch a.op {
		case terminate:
			require.Equal(k.t, "true", a.args.Get("ShouldDecrementDesiredCapacity"))
			require.Zero(k.t, a.working, "instance %s was ended with a job on it", a.instance())
		case setDesired:
			exist := a.group.Desired - a.group.Outstanding
			require.GreaterOrEqual(k.t, a.target(), min(exist, a.group.Desired), "desired below what exists")
		case completeHook, keepHook:
		default:
			require.Failf(k.t, "an unexpected write", "%s %v", a.op, a.args)
		}
	}
	for id, cause := range k.ended() {
		require.Contains(k.t, []asgstub.Cause{asgstub.ByName, asgstub.BySomebody}, cause, id)
	}
}
