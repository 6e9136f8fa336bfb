package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
)

var (
	killPoints = flag.Int("kill-points", 6, "how often TestC21_KilledAt50RandomPoints kills the control plane; `make chaos` takes 50")
	killSeed   = flag.Uint64("kill-seed", 0, "seed of TestC21_KilledAt50RandomPoints, to replay one; 0 = a new one")
)

// moment is when the control plane is killed.
type moment string

const (
	atRandom   moment = "at a random moment"
	atLaunch   moment = "as it raises desired"
	atRemoval  moment = "as it removes an instance"
	atTakeback moment = "as it takes back what was not filled"
	atHook     moment = "as it lets a hook's instance go"
	atRest     moment = "at a random moment after the last job"
	atLoss     moment = "before an instance is lost with its job"
)

// moments are taken in turn, so that few rounds have most of them too. The last takes
// more than a minute: nobody misses the job before its claim has run out.
var moments = []moment{atLaunch, atTakeback, atRandom, atRest, atHook, atRemoval, atLoss}

// killing is the story of one seed.
type killing struct {
	*cloudStand
	rng      *rand.Rand
	replica  *cloudReplica
	started  int // control planes so far
	before   int // instances asked for before this round
	gone     int // instances that somebody ended before this round
	canceled map[string]bool
	wait     time.Duration // for what must come, after what was lost is asked for again
}

// C21: the control plane is killed wherever it may be, and another goes on: nothing
// is lost, done twice or forgotten.
func TestC21_KilledAt50RandomPoints(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes with -kill-points 50, most of one without")
	}
	t.Parallel()
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64N(1_000_000)
	}
	replay := fmt.Sprintf("-run TestC21 -kill-points %d -kill-seed %d", *killPoints, seed)
	t.Log("replay with", replay)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("it failed; replay with", replay)
		}
	})
	k := &killing{
		cloudStand: newCloudStand(t, func(g *asgstub.GroupConfig) {
			g.Hooks = []asgstub.HookConfig{{Name: "drain", Transition: asgstub.Terminating, DefaultResult: asgstub.Continue}}
		}),
		rng: rand.New(rand.NewPCG(seed, seed)), canceled: map[string]bool{}, wait: within,
	}
	k.start()
	for n := range *killPoints {
		k.round(n)
		if t.Failed() {
			t.Logf("the control plane of the last round said:\n%v", k.replica.err)
			return
		}
	}
	k.awaitEmpty(k.wait, k.replica.err)
	k.requireOneLaunchEach(0)
	k.requireNamed()
}

// start starts the next control plane. It has the name of the last one, as a
// supervisor would give it, and credentials of its own.
func (k *killing) start() {
	k.started++
	k.replica = k.serve("one", fmt.Sprintf("life-%d", k.started), k.routers[0])
}

// plan is what one round is about.
type plan struct {
	when    moment
	fate    fate // of the write in which it is killed
	ids     []string
	first   int           // jobs that come at once
	second  time.Duration // until the others come
	lasting time.Duration // of each job
	release string        // the file for which the jobs wait instead; empty: none
	empty   bool          // it begins without instances
}

// plan draws a round.
//
// What is left of a removal that was cut off in the middle, or got lost, is asked for
// again after a minute. The first rounds, which each run has, don't wait for that:
// they remove one instance only, and it is removed.
func (k *killing) plan(n int) plan {
	p := plan{
		when: moments[n%len(moments)], fate: carriedOut, ids: names(fmt.Sprintf("round%d", n), 2+k.rng.IntN(5)),
		second: k.upTo(time.Second), lasting: 300*time.Millisecond + k.upTo(2*time.Second),
	}
	p.first = k.rng.IntN(len(p.ids)) + 1
	if k.rng.IntN(2) == 0 {
		p.fate = lost
	}
	switch p.when {
	case atRemoval, atHook:
		p.empty = true // or the jobs run on what is on its way out already
		if n < len(moments) {
			p.fate, p.ids, p.first = carriedOut, p.ids[:1], 1
		} else {
			k.wait = time.Minute + within
		}
	case atTakeback: // all at once and for long, so that instances are missing when they are canceled
		p.first, p.lasting, p.empty = len(p.ids), 5*time.Second, true
	case atLoss:
		p.release = filepath.Join(k.t.TempDir(), "release")
	case atLaunch:
		p.empty = true // or what is there may do
	case atRandom, atRest:
	}
	return p
}

// round is a burst of jobs, a kill and what comes of it.
func (k *killing) round(n int) {
	k.t.Helper()
	p := k.plan(n)
	k.t.Logf("round %d: %d jobs, killed %s; what it has sent is %s", n, len(p.ids), p.when, p.fate)
	if p.empty {
		k.awaitEmpty(k.wait, k.replica.err)
	}
	if p.when == atTakeback {
		k.cloud.SetFaults(linux, asgstub.Faults{Boot: bootTime, Victim: asgstub.BusyFirst, Partial: 0.4, LateFill: 15 * time.Second})
	}
	caught := k.arm(p.when)
	asked := &living{replica: k.replica}
	var load sync.WaitGroup
	work := fmt.Sprintf("sleep %.3f", p.lasting.Seconds())
	if p.release != "" {
		work = until(p.release)
	}
	load.Go(func() {
		script := k.diary.script(work)
		k.pushAll(asked, p.ids[:p.first], script)
		<-time.After(p.second)
		k.pushAll(asked, p.ids[p.first:], script)
	})
	k.kill(p, caught)
	<-time.After(k.upTo(time.Second)) // nobody is there for a while
	k.start()
	asked.replace(k.replica)
	load.Wait()
	k.awaitJobs(p.ids)
	k.cloud.SetFaults(linux, asgstub.Faults{Boot: bootTime, Victim: asgstub.BusyFirst})
	k.awaitAgreement()
	k.requireOneLaunchEach(len(p.ids))
	k.requireRunOnce(p.ids)
}

func (k *killing) upTo(d time.Duration) time.Duration { return time.Duration(k.rng.Int64N(int64(d))) }

// arm sets the trap for a moment that a write makes; nil for the others.
func (k *killing) arm(when moment) *trap {
	is := map[moment]func(arrival) bool{
		atLaunch:   arrival.raises,
		atTakeback: arrival.lowers,
		atRemoval:  func(a arrival) bool { return a.op == terminate },
		atHook:     func(a arrival) bool { return a.op == completeHook },
	}[when]
	if is == nil {
		return nil
	}
	caught := newTrap(is)
	k.gate.set(caught)
	return caught
}

// kill waits for the moment and kills the control plane in it. What it had sent
// meets its fate; after that nothing comes of it.
func (k *killing) kill(p plan, caught *trap) {
	k.t.Helper()
	switch p.when {
	case atRandom:
		<-time.After(k.upTo(3 * time.Second))
	case atRest:
		k.awaitJobs(p.ids)
		<-time.After(k.upTo(4 * time.Second))
	case atTakeback:
		k.cancelWhenAsked(p.ids)
	case atLoss:
		require.Eventually(k.t, func() bool { return k.busy() != "" }, within, poll, "%v", k.replica.err)
	case atLaunch, atRemoval, atHook:
	}
	if caught != nil {
		select {
		case <-caught.caught:
		case <-time.After(k.wait):
			require.FailNow(k.t, "the moment never came", "%s\n%v", p.when, k.replica.err)
		}
	}
	orphans := k.replica.kill()
	if caught != nil {
		caught.fate <- p.fate
		<-caught.over
	}
	requireGone(k.t, orphans)
	k.requireFenced()
	if p.when == atLoss {
		require.True(k.t, k.cloud.TerminateExternally(k.busy()))
		touch(k.t, p.release)
	}
}

// busy is an instance in service with a job; empty = there is none.
func (k *killing) busy() string {
	for _, r := range k.diary.runs() {
		if in, _ := k.cloud.Instance(r.instance); !r.ended && in.State == asgstub.InService {
			return r.instance
		}
	}
	return ""
}

// cancelWhenAsked takes the jobs back when instances were asked for and not all
// came, so that what has not come is not wanted any more.
func (k *killing) cancelWhenAsked(ids []string) {
	k.t.Helper()
	require.Eventually(k.t, func() bool {
		g, _ := k.cloud.Group(linux)
		return g.Outstanding > 0
	}, within, poll, "%v", k.replica.err)
	_, err := k.replica.jobs.Cancel(k.t.Context(), &jobsv1.CancelRequest{JobIds: ids})
	require.NoError(k.t, err)
	for _, id := range ids {
		k.canceled[id] = true
	}
}

// living is the control plane that is asked; another may take its place.
type living struct {
	mu      sync.Mutex
	replica *cloudReplica
}

func (l *living) get() *cloudReplica {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replica
}

func (l *living) replace(r *cloudReplica) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replica = r
}

// pushAll submits jobs until somebody has acknowledged them all.
func (k *killing) pushAll(replicas *living, ids []string, script string) {
	deadline := time.Now().Add(within)
	for len(ids) > 0 {
		err := replicas.get().push(ids, script)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			assert.NoError(k.t, err, "jobs are not taken")
			return
		}
		<-time.After(5 * poll)
	}
}

// awaitJobs waits until the jobs have ended. One that is lost waits for its claim to run
// out first.
func (k *killing) awaitJobs(ids []string) {
	k.t.Helper()
	var states map[string]int
	require.Eventually(k.t, func() bool {
		states = k.replica.states(ids)
		return states["completed"]+states["canceled"] == len(ids)
	}, time.Minute+within, 5*poll, "jobs are left: %v\n%v", &states, k.replica.err)
}
