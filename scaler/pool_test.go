package scaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/scaler/roster"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is all that a pool's loop talks to, as a test moves it. log has what was
// asked of it, in order.
type world struct {
	now      time.Time
	status   pluginsdk.GroupStatus
	list     []pluginsdk.Instance
	machines []router.Machine
	classes  []demand.Class
	fail     map[string]error
	saved    []byte
	epoch    uint64
	until    time.Duration // rest of the tenure
	log      []string
}

func newWorld() *world {
	return &world{now: t0, status: pluginsdk.GroupStatus{Group: "g", Max: 10}, fail: map[string]error{}, epoch: 1, until: 15 * time.Second}
}

// clock is what a pool measures by how long its calls take: no time at all, however busy
// the machine that the test runs on is.
func (w *world) clock() time.Time { return w.now }

func (w *world) do(op string, args ...any) error {
	w.log = append(w.log, op+fmt.Sprint(args...))
	return w.fail[op]
}

func (w *world) Status(context.Context) (pluginsdk.GroupStatus, error) {
	return w.status, w.fail["status"]
}

func (w *world) ListInstances(context.Context) ([]pluginsdk.Instance, error) {
	return w.list, w.fail["list"]
}

func (w *world) SetDesired(_ context.Context, target, expected int) (int, error) {
	if err := w.do("set", target, "|", expected); err != nil {
		return 0, err
	}
	for i := w.status.Desired; i < target; i++ {
		w.list = append(w.list, pluginsdk.Instance{ID: fmt.Sprintf("i-%d", i), State: pluginsdk.StateCreating, LaunchedAt: w.now})
	}
	w.status.Desired = target
	return target, nil
}

func (w *world) Remove(_ context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	if err := w.do("remove", ids); err != nil {
		return nil, err
	}
	var out []pluginsdk.RemoveResult
	for _, id := range ids {
		out = append(out, pluginsdk.RemoveResult{ID: id, Outcome: pluginsdk.Removed})
		for i := range w.list {
			if w.list[i].ID == id {
				w.list[i].State = pluginsdk.StateDeleting
			}
		}
		w.status.Desired--
	}
	return out, nil
}

func (w *world) Withdraw(_ context.Context, expected int) (pluginsdk.WithdrawResult, error) {
	return pluginsdk.WithdrawResult{Desired: w.status.Desired}, w.do("withdraw", expected)
}

func (w *world) CompleteHook(_ context.Context, ids []string) error { return w.do("complete", ids) }

func (w *world) ReportUnhealthy(_ context.Context, ids []string) error { return w.do("report", ids) }

func (w *world) Machines(context.Context) ([]router.Machine, error) {
	return w.machines, w.fail["machines"]
}

func (w *world) OrderDrain(_ context.Context, _ string, orders []router.DrainOrder) error {
	for _, o := range orders {
		if err := w.do("drain", o.Machine, "=", o.On); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) RemoveMachines(_ context.Context, _ string, ids []spillway.MachineID) error {
	return w.do("forget", ids)
}

func (w *world) Demand(context.Context) (demand.View, error) {
	return demand.View{Classes: w.classes, At: w.now}, w.fail["demand"]
}

func (w *world) SavePoolState(_ context.Context, _ string, _ uint64, state []byte) error {
	if err := w.do("save"); err != nil {
		return err
	}
	w.saved = state
	return nil
}

func (w *world) LoadPoolState(context.Context, string) ([]byte, bool, error) {
	return w.saved, w.saved != nil, w.fail["load"]
}

func (w *world) AppendLedger(context.Context, string, uint64, []byte) error { return w.fail["ledger"] }

func (w *world) Hold(_ string, now time.Time) (uint64, time.Time, bool) {
	return w.epoch, now.Add(w.until), w.epoch != 0
}

func (w *world) pend(n int) {
	w.classes = []demand.Class{{ID: "c", Requirement: spillway.Requirement{Tags: []string{"linux"}}, Pending: n, Oldest: w.now}}
}

// boot registers a machine for each listed instance.
func (w *world) boot() {
	w.machines = nil
	for i := range w.list {
		w.list[i].State = pluginsdk.StateRunning
		w.machines = append(w.machines, router.Machine{
			ID: spillway.MachineID("m" + w.list[i].ID), InstanceID: w.list[i].ID, Pool: "linux", Capacity: 1, Connected: true,
			HeardAt: w.now, HeartbeatAt: w.now, RegisteredAt: w.now, LastUsedAt: w.now,
		})
	}
}

func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for i := range w.machines {
		w.machines[i].HeardAt, w.machines[i].HeartbeatAt = w.now, w.now
	}
}

func (w *world) taken() []string {
	var out []string
	for _, l := range w.log {
		if l != "save" {
			out = append(out, l)
		}
	}
	w.log = nil
	return out
}

func config(w *world) PoolConfig {
	return PoolConfig{
		Pool: spillway.Pool{
			Name: "linux", Capability: spillway.Capability{Tags: []string{"linux"}}, CapacityPerInstance: 1, Provider: "p", Group: "g",
		},
		Policy:  policy.Policy{Max: 10, CapacityPerInstance: 1, IdleTime: 10 * time.Minute},
		Refresh: 5 * time.Second,
		Rules: roster.Rules{
			Capacity: 1, Max: 10, IdleTime: 10 * time.Minute, RegisterTimeout: 10 * time.Minute, SilentAfter: spillway.SilentAfter,
			SilentTimeout: 30 * time.Minute, SecondLook: 2 * time.Second, AckTimeout: 30 * time.Second, RemoveRetry: time.Minute,
		},
	}
}

type rig struct {
	*world
	fleet  *Fleet
	pool   *Pool
	ledger []LedgerEntry
	told   []roster.Change
}

func newRig(w *world) *rig {
	r := &rig{world: w}
	events := &Events{
		Decided: func(e LedgerEntry) { r.ledger = append(r.ledger, e) },
		Changed: func(c ChangeInfo) { r.told = append(r.told, c.Change) },
	}
	r.fleet = NewFleet(w, w, 5*time.Second, spillway.SilentAfter, events)
	r.pool = NewPool(config(w), w, w, w, w, events)
	r.pool.now = w.clock
	return r
}

// tick does what the loop does: a look, a tick, and once more if the pool's offer
// has changed by it.
func (r *rig) tick() Result {
	res := r.pool.Tick(context.Background(), r.now, r.fleet.Observe(context.Background(), r.now, []*Pool{r.pool}))
	if res.Offers {
		again := r.pool.Tick(context.Background(), r.now, r.fleet.Observe(context.Background(), r.now, []*Pool{r.pool}))
		res.Respill, res.Again, res.Wake = res.Respill || again.Respill, res.Again || again.Again, again.Wake
	}
	return res
}

func TestC01_WakesFromZeroWithOneCall(t *testing.T) {
	r := newRig(newWorld())
	r.pend(3)
	r.tick()
	require.Equal(t, []string{"set3|0"}, r.taken())
	require.Equal(t, policy.ReasonDemand, r.ledger[len(r.ledger)-1].Reason)
	for range 5 {
		r.pass(5 * time.Second)
		r.tick()
	}
	require.Empty(t, r.taken(), "C03: what boots is counted")
	r.boot()
	r.tick()
	require.Empty(t, r.taken())
	require.Equal(t, 3, r.pool.Status().InService)
}

func TestPersistThenAct(t *testing.T) {
	r := newRig(newWorld())
	r.tick()
	r.log = nil
	r.pend(1)
	r.tick()
	require.Equal(t, []string{"save", "set1|0"}, r.log[:2])
}

func TestWhatCannotBePersistedIsNotDone(t *testing.T) {
	r := newRig(newWorld())
	r.pend(1)
	r.fail["save"] = errors.New("store away")
	r.tick()
	require.Empty(t, r.taken())
	delete(r.fail, "save")
	r.tick()
	require.Equal(t, []string{"set1|0"}, r.taken(), "I7: goes on by itself")
}

func TestI5_UnknownHolds(t *testing.T) {
	for _, what := range []string{"demand", "machines", "status", "list"} {
		t.Run(what, func(t *testing.T) {
			r := newRig(newWorld())
			r.pend(2)
			r.tick()
			r.boot()
			r.classes = nil
			r.machines[0].Busy = 1
			r.pass(20 * time.Minute)
			r.taken()
			r.fail[what] = errors.New("away")
			r.tick()
			require.Empty(t, r.taken())
			delete(r.fail, what)
			r.pass(5 * time.Second)
			r.tick()
			require.Equal(t, []string{"drainmi-1=true"}, r.taken(), "the idle one, once everything is known again")
		})
	}
}

func TestScaleInLooksTwiceAndEndsByName(t *testing.T) {
	r := newRig(newWorld())
	r.pend(2)
	r.tick()
	r.boot()
	r.classes = nil
	r.machines[0].Busy = 1
	r.pass(10 * time.Minute)
	r.taken()
	r.tick()
	require.Equal(t, []string{"drainmi-1=true"}, r.taken())
	r.machines[1].Draining, r.machines[1].DrainAckedAt = true, r.now
	r.pass(time.Second)
	r.tick()
	require.Empty(t, r.taken(), "a second too early for the second look")
	r.pass(5 * time.Second)
	r.tick()
	require.Equal(t, []string{"remove[i-1]"}, r.taken())
	r.pass(5 * time.Second)
	r.tick()
	require.Empty(t, r.taken())
	require.Equal(t, 1, r.pool.Status().Desired)
	r.list, r.machines[1].Connected = r.list[:1], false
	r.pass(spillway.SilentAfter)
	r.machines[1].HeardAt = t0
	r.tick()
	require.Equal(t, []string{"forget[mi-1]"}, r.taken())
}

func TestC04_OwnDrainsComeBackBeforeAnythingIsBought(t *testing.T) {
	r := newRig(newWorld())
	r.pend(1)
	r.tick()
	r.boot()
	r.classes = nil
	r.pass(10 * time.Minute)
	r.tick()
	r.machines[0].Draining = true
	r.taken()
	r.pend(1)
	r.pass(time.Second)
	r.tick()
	require.Equal(t, []string{"drainmi-0=false"}, r.taken())
}

func TestARefusalCoolsOffAndSpills(t *testing.T) {
	r := newRig(newWorld())
	r.pend(2)
	r.fail["set"] = pluginsdk.Errorf(pluginsdk.KindCapacity, "none left")
	require.True(t, r.tick().Respill)
	require.Equal(t, []string{"set2|0"}, r.taken())
	pic := r.fleet.Observe(context.Background(), r.now, []*Pool{r.pool})
	require.Len(t, pic.Attribution.Overflow, 1, "the demand is free for other pools in the same tick")
	for range 5 {
		r.pass(5 * time.Second)
		r.tick()
	}
	require.Empty(t, r.taken(), "no call within the cool-off")
	delete(r.fail, "set")
	r.pass(5 * time.Second)
	r.tick()
	require.Equal(t, []string{"set1|0"}, r.taken(), "one call for one instance")
	r.pass(5 * time.Second)
	r.tick()
	require.Equal(t, []string{"set2|1"}, r.taken(), "closed: the one exists")
}

func TestC28_AnAcceptedRequestDoesNotResetTheCoolOff(t *testing.T) {
	r := newRig(newWorld())
	r.pend(4)
	r.tick() // accepted …
	r.list = nil
	failAgain := func(id string) {
		r.status.Failures = []pluginsdk.GroupFailure{{ID: id, Kind: pluginsdk.KindCapacity, Message: "none left", At: r.now}}
		r.pass(5 * time.Second)
		r.tick()
	}
	failAgain("f1") // … and failed
	require.Equal(t, []string{"set4|0", "withdraw4"}, r.taken(), "what was asked for is taken back")
	r.status.Desired = 0
	calls := map[time.Duration][]string{}
	var lengths []time.Duration
	for i := range 3 {
		began := r.now
		for !slices.ContainsFunc(r.log, func(l string) bool { return strings.HasPrefix(l, "set") }) {
			r.log = nil
			r.pass(5 * time.Second)
			r.tick()
		}
		calls[r.now.Sub(began)] = r.taken()
		lengths = append(lengths, r.now.Sub(began))
		r.list = nil // accepted, and no instance comes
		failAgain(fmt.Sprint("g", i))
		r.status.Desired = 0
		r.taken()
	}
	for _, c := range calls {
		require.Equal(t, []string{"set1|0"}, c, "one probe for one instance")
	}
	require.Equal(t, []time.Duration{30 * time.Second, 60 * time.Second, 120 * time.Second}, lengths)
}

func TestAConflictMeansLookAgain(t *testing.T) {
	r := newRig(newWorld())
	r.pend(1)
	r.fail["set"] = pluginsdk.Conflict(4)
	r.status.Desired = 0
	require.True(t, r.tick().Again)
	require.False(t, r.pool.state.CoolOff.Active(r.now), "a conflict is no failure")
}

func TestAnUnknownOutcomeIsLookedUpBeforeItIsRepeated(t *testing.T) {
	r := newRig(newWorld())
	r.pend(1)
	r.fail["set"] = context.DeadlineExceeded
	r.tick()
	r.taken()
	// It had been carried out after all.
	delete(r.fail, "set")
	_, _ = r.SetDesired(context.Background(), 1, 0)
	r.taken()
	for range 10 {
		r.pass(5 * time.Second)
		r.tick()
	}
	require.Empty(t, r.taken(), "I3")
}

func TestI8_NothingIsWrittenWithoutOrAtTheEndOfATenure(t *testing.T) {
	r := newRig(newWorld())
	r.pend(1)
	r.epoch = 0
	r.tick()
	require.Empty(t, r.taken())
	r.epoch, r.until = 7, WriteDeadline
	r.tick()
	require.Empty(t, r.taken(), "a write could outlive the tenure")
	r.until = WriteDeadline + time.Second
	r.tick()
	require.Equal(t, []string{"set1|0"}, r.taken())
}

func TestC21_ANewOwnerAdoptsAndDoesNotLaunchAgain(t *testing.T) {
	r := newRig(newWorld())
	r.pend(3)
	r.tick()
	r.taken()
	next := newRig(r.world)
	next.epoch = 2
	for range 3 {
		next.pass(5 * time.Second)
		next.tick()
	}
	require.Empty(t, next.taken())
	require.Equal(t, 3, next.pool.Status().Booting)
}

func TestC33_WhatSomebodyElseTookIsAskedForAgain(t *testing.T) {
	r := newRig(newWorld())
	r.pend(2)
	r.tick()
	r.boot()
	r.classes = nil
	r.machines[0].Busy, r.machines[1].Busy = 1, 1
	r.taken()
	r.status.Desired = 0
	r.pass(5 * time.Second)
	r.tick()
	require.Equal(t, []string{"set2|0"}, r.taken())
}

func TestAFollowerLearnsTheOwnersOffer(t *testing.T) {
	w := newWorld()
	owner := newRig(w)
	owner.pend(3)
	owner.tick()
	owner.pass(5 * time.Second)
	owner.tick()
	follower := newRig(w)
	w.epoch = 0
	follower.tick()
	require.Equal(t, owner.pool.offer.Load(), follower.pool.offer.Load())
	require.Equal(t, 3, follower.pool.Status().Booting)
}

func TestC14_JobsThatANearlyUsedUpInstanceCannotTakeGetAnother(t *testing.T) {
	w := newWorld()
	r := newRig(w)
	cfg := config(w)
	cfg.Pool.CapacityPerInstance, cfg.Pool.MaxUses = 2, 3
	cfg.Policy.CapacityPerInstance, cfg.Rules.Capacity, cfg.Rules.MaxUses = 2, 2, 3
	r.pool.Reconfigure(cfg)
	r.pend(2)
	r.tick()
	r.boot()
	r.machines[0].Capacity, r.machines[0].Uses = 2, 2 // one job more in its life
	r.taken()
	r.pass(5 * time.Second)
	r.tick()
	require.Equal(t, []string{"set2|1"}, r.taken())
	for range 3 {
		r.pass(5 * time.Second)
		r.tick()
	}
	require.Empty(t, r.taken(), "I3: one launch for it")
}
