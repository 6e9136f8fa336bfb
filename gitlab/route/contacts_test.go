package route_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
)

// registry is a registry in memory.
type registry struct {
	sync.Mutex
	machines map[spillway.MachineID]router.Machine
	writes   [][]router.Machine
	reads    int
	err      error
}

func newRegistry() *registry { return &registry{machines: map[spillway.MachineID]router.Machine{}} }

func (r *registry) PutMachines(_ context.Context, machines []router.Machine) error {
	r.Lock()
	defer r.Unlock()
	if r.err != nil {
		return r.err
	}
	r.writes = append(r.writes, machines)
	for _, m := range machines {
		r.machines[m.ID] = m
	}
	return nil
}

func (r *registry) Machines(context.Context) ([]router.Machine, error) {
	r.Lock()
	defer r.Unlock()
	r.reads++
	if r.err != nil {
		return nil, r.err
	}
	all := []router.Machine{}
	for _, m := range r.machines {
		all = append(all, m)
	}
	return all, nil
}

func (r *registry) get(id spillway.MachineID) router.Machine {
	r.Lock()
	defer r.Unlock()
	return r.machines[id]
}

func (r *registry) fail(err error) {
	r.Lock()
	defer r.Unlock()
	r.err = err
}

func (r *registry) count() int {
	r.Lock()
	defer r.Unlock()
	return len(r.writes)
}

func caller(system, instance string) route.Caller {
	return route.Caller{Token: "hash", System: spillway.MachineID(system), Pool: pool("p", 0), InstanceID: instance, Version: "19.4.0"}
}

// run starts Run and has it ended with the test's bubble.
func run(t *testing.T, c *route.Contacts) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestFirstContactIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		c := route.NewContacts(r, "replica-1", route.Events{})
		run(t, c)
		at := time.Now()
		c.Heard(caller("s_1", "i-1"), at)
		synctest.Wait()
		require.Equal(t, router.Machine{
			ID: "s_1", InstanceID: "i-1", Pool: "p", Version: "19.4.0", Capacity: 2, Connected: true, Replica: "replica-1",
			HeardAt: at, RegisteredAt: at, LastUsedAt: at,
		}, r.get("s_1"), "and never a heartbeat: being heard doesn't prove idleness")
	})
}

func TestContactsAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		c := route.NewContacts(r, "r", route.Events{})
		run(t, c)
		for i := range 1000 {
			c.Heard(caller(fmt.Sprintf("s_%d", i), ""), time.Now())
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := r.count()
		require.LessOrEqual(t, before, 2)

		for range 10_000 { // one machine, every millisecond
			c.Heard(caller("s_1", ""), time.Now())
			time.Sleep(time.Millisecond)
		}
		last := time.Now()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.InDelta(t, 3, r.count()-before, 1)
		require.WithinDuration(t, last, r.get("s_1").HeardAt, 2*time.Millisecond)
		require.LessOrEqual(t, r.reads, 2, "the registry is read for first contacts and once a minute only")

		before = r.count()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Equal(t, before, r.count(), "nobody was heard, nothing is written")
	})
}

func TestAnOpenQuestionCountsAsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		c := route.NewContacts(r, "r", route.Events{})
		run(t, c)
		done := c.Waiting(caller("s_1", "i-1"))
		done2 := c.Waiting(caller("s_1", "i-1"))
		for range 20 {
			time.Sleep(15 * time.Second)
			synctest.Wait()
			require.Less(t, time.Since(r.get("s_1").HeardAt), spillway.SilentAfter)
		}
		done()
		done() // does no harm
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Less(t, time.Since(r.get("s_1").HeardAt), spillway.SilentAfter, "the other question is open still")
		done2()
		end := time.Now()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.Equal(t, end, r.get("s_1").HeardAt, "the end of the question was the last contact")
	})
}

func TestAFailedWriteIsToldAndRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		down := errors.New("store is down")
		r.fail(down)
		var failures []error
		var lost []int
		c := route.NewContacts(r, "r", route.Events{Failed: func(n int, err error) { failures, lost = append(failures, err), append(lost, n) }})
		run(t, c)
		at := time.Now()
		c.Heard(caller("s_1", ""), at)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.NotEmpty(t, failures)
		require.ErrorIs(t, failures[0], down)
		require.Equal(t, 1, lost[0])
		require.LessOrEqual(t, len(failures), 11, "at most one try a second")
		r.fail(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, at, r.get("s_1").HeardAt, "nothing was lost")
	})
}

func TestASystemIDOfTwoInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		var told []route.SharedSystem
		c := route.NewContacts(r, "r", route.Events{Shared: func(s route.SharedSystem) { told = append(told, s) }})
		run(t, c)
		require.NoError(t, c.Admit(caller("s_1", "i-1"), time.Now()))
		for range 30 {
			require.ErrorIs(t, c.Admit(caller("s_1", "i-2"), time.Now()), route.ErrSharedSystem)
			require.NoError(t, c.Admit(caller("s_1", "i-1"), time.Now()))
			require.NoError(t, c.Admit(caller("s_1", ""), time.Now()), "one without the label may be either")
			time.Sleep(3 * time.Second)
		}
		synctest.Wait()
		require.Len(t, told, 2, "once a minute")
		require.Equal(t, route.SharedSystem{Pool: "p", System: "s_1", Kept: "i-1", Turned: "i-2"}, told[0])
		require.Contains(t, told[0].String(), "i-2")
		require.Equal(t, "i-1", r.get("s_1").InstanceID)
		c.Waiting(caller("s_1", "i-2"))() // is not heard either

		time.Sleep(spillway.SilentAfter)
		at := time.Now()
		require.NoError(t, c.Admit(caller("s_1", "i-2"), at), "the first one is silent: this is its successor")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, "i-2", r.get("s_1").InstanceID)
		require.Equal(t, at, r.get("s_1").RegisteredAt)
	})
}

func TestReplicasAgreeOnASharedSystemID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		told := 0
		one := route.NewContacts(r, "1", route.Events{})
		two := route.NewContacts(r, "2", route.Events{Shared: func(route.SharedSystem) { told++ }})
		run(t, one)
		run(t, two)
		one.Heard(caller("s_1", "i-1"), time.Now())
		time.Sleep(time.Second)
		first := time.Now()
		two.Heard(caller("s_1", "i-2"), first)
		time.Sleep(time.Second)
		synctest.Wait()
		require.ErrorIs(t, two.Admit(caller("s_1", "i-2"), time.Now()), route.ErrSharedSystem)
		require.Equal(t, 1, told)
		require.NoError(t, one.Admit(caller("s_1", "i-1"), time.Now()))
		require.Equal(t, "i-1", r.get("s_1").InstanceID)
	})
}

func TestAMachineIsKnownSinceItWasFirstHeardAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		first := time.Now()
		run(t, func() *route.Contacts {
			c := route.NewContacts(r, "1", route.Events{})
			c.Heard(caller("s_1", "i-1"), first)
			return c
		}())
		time.Sleep(time.Hour)
		c := route.NewContacts(r, "2", route.Events{})
		run(t, c)
		word := caller("s_1", "") // about a job: it says neither of the two
		word.Version = ""
		c.Heard(word, time.Now())
		time.Sleep(time.Second)
		synctest.Wait()
		m := r.get("s_1")
		require.Equal(t, first, m.RegisteredAt)
		require.Equal(t, first, m.LastUsedAt, "to be heard is no use: it is idle for as long as before")
		require.Equal(t, "i-1", m.InstanceID, "a contact without the label doesn't erase it")
		require.Equal(t, "19.4.0", m.Version, "nor the version")
		require.Equal(t, "2", m.Replica)
	})
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		c := route.NewContacts(r, "r", route.Events{})
		run(t, c)
		c.Heard(caller("s_1", ""), time.Now())
		c.Heard(caller("s_2", ""), time.Now())
		time.Sleep(time.Second)
		c.Forget("another token", "s_2")
		c.Forget("hash", "s_1")
		c.Forget("hash", "nobody")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.False(t, r.get("s_1").Connected)
		require.True(t, r.get("s_2").Connected)
		writes := r.count()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, writes, r.count(), "it is not written again")
		c.Heard(caller("s_1", ""), time.Now())
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, r.get("s_1").Connected, "it came back")
	})
}

func TestContactsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		var full []string
		firsts := 0
		c := route.NewContacts(r, "r", route.Events{
			Full: func(pool string) { full = append(full, pool) }, First: func(router.Machine) { firsts++ },
		})
		run(t, c)
		start := time.Now()
		done := c.Waiting(caller("s_waits", ""))
		defer done()
		for i := range route.MaxContactsPerPool - 1 {
			require.NoError(t, c.Admit(caller(fmt.Sprintf("s_%d", i), ""), start))
		}
		for i := range 100 {
			require.ErrorIs(t, c.Admit(caller(fmt.Sprintf("s_more_%d", i), ""), start), route.ErrTooManyMachines)
		}
		require.Equal(t, []string{"p"}, full, "told once")
		require.Equal(t, route.MaxContactsPerPool, firsts)
		require.NoError(t, c.Admit(caller("s_1", ""), start), "who is known stays known")
		other := caller("s_other", "")
		other.Pool = pool("q", 0)
		require.NoError(t, c.Admit(other, start), "one pool doesn't take another's room")

		time.Sleep(2 * time.Minute) // all are on record and silent now
		require.NoError(t, c.Admit(caller("s_new", ""), time.Now()))
		require.NoError(t, c.Admit(caller("s_waits", ""), time.Now()))
	})
}

func TestContactsFromManyGoroutines(t *testing.T) {
	r := newRegistry()
	c := route.NewContacts(r, "r", route.Events{Shared: func(route.SharedSystem) {}})
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx)
	}()
	for g := range 8 {
		group.Go(func() {
			for i := range 500 {
				who := caller(fmt.Sprintf("s_%d", i%17), fmt.Sprintf("i-%d", g%2))
				c.Waiting(who)()
				c.Heard(who, time.Now())
				c.Forget("hash", who.System)
			}
		})
	}
	group.Wait()
	require.Eventually(t, func() bool { return r.count() > 0 }, 10*time.Second, 5*time.Millisecond)
	cancel()
	<-ended
}
