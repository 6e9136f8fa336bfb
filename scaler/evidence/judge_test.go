package evidence

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// ago is a time before t0.
func ago(d time.Duration) time.Time { return t0.Add(-d) }

// idle reports whether a machine is presented idle, as roster takes it.
func idle(m *router.Machine) bool {
	return m.InUse() == 0 && m.Connected && !m.HeartbeatAt.IsZero() && t0.Sub(m.HeartbeatAt) < 45*time.Second
}

// judged is the machine of an instance.
func judged(t *testing.T, f *Facts, instance string) router.Machine {
	t.Helper()
	for _, m := range Judge(f, t0).Machines {
		if m.InstanceID == instance {
			return m
		}
	}
	t.Fatalf("no machine on %s", instance)
	return router.Machine{}
}

// hooked is a pool of two instances whose runners' metrics and GitLab agree on idle.
func hooked() *Facts {
	return &Facts{
		Pool: "p", Mode: Observe, Capacity: 2, Drain: DrainHook, HookVerified: true, Fresh: 45 * time.Second, ListedAt: ago(time.Second),
		Instances: []Instance{{ID: "i-1", LaunchedAt: ago(time.Hour), Running: true}, {ID: "i-2", LaunchedAt: ago(time.Hour), Running: true}},
		Scrapes: map[string]Scrape{
			"i-1": {At: ago(10 * time.Second), FirstAt: ago(50 * time.Minute), Systems: []string{"s-1"}, LastBusyAt: ago(20 * time.Minute)},
			"i-2": {At: ago(12 * time.Second), FirstAt: ago(50 * time.Minute), Jobs: 1, Systems: []string{"s-2"}, LastBusyAt: ago(12 * time.Second)},
		},
		Runners: map[string]Runner{"7": {At: ago(5 * time.Second), Whole: true, Running: 1, BySystem: map[string]int{"s-2": 1}, Systems: []string{"s-1", "s-2"}}},
		Drains:  map[string]router.DrainOrder{},
	}
}

func TestMetricsAndGitLabAgree(t *testing.T) {
	m := judged(t, hooked(), "i-1")
	require.Equal(t, router.Machine{
		ID: "i-1", InstanceID: "i-1", Pool: "p", Capacity: 2, Connected: true, HeardAt: ago(10 * time.Second),
		HeartbeatAt: ago(10 * time.Second), RegisteredAt: ago(50 * time.Minute), LastUsedAt: ago(20 * time.Minute),
	}, m, "the proof is as old as its oldest part")
	require.False(t, idle(ptr(judged(t, hooked(), "i-2"))))
	require.Empty(t, Judge(hooked(), t0).CannotDrain)
	require.Empty(t, Judge(hooked(), t0).Unaccounted)
}

func ptr[T any](v T) *T { return &v }

// Each of these takes one proof away.
func TestWithoutOneProofAMachineIsNotIdle(t *testing.T) {
	runner := func(change func(*Runner)) func(*Facts) {
		return func(f *Facts) {
			r := f.Runners["7"]
			change(&r)
			f.Runners["7"] = r
		}
	}
	scrape := func(change func(*Scrape)) func(*Facts) {
		return func(f *Facts) {
			s := f.Scrapes["i-1"]
			change(&s)
			f.Scrapes["i-1"] = s
		}
	}
	for name, without := range map[string]func(*Facts){
		"GitLab isn't asked":                   func(f *Facts) { f.Runners = nil },
		"nothing is known of the runner":       func(f *Facts) { f.Runners["7"] = Runner{} },
		"nothing is known of another runner":   func(f *Facts) { f.Runners["8"] = Runner{} },
		"GitLab's list is not whole":           runner(func(r *Runner) { r.Whole = false }),
		"GitLab's list is old":                 runner(func(r *Runner) { r.At = ago(46 * time.Second) }),
		"GitLab shows a job on it":             runner(func(r *Runner) { r.Running, r.BySystem = 2, map[string]int{"s-1": 1, "s-2": 1} }),
		"GitLab shows a job on who knows whom": runner(func(r *Runner) { r.Running = 2 }),
		"the scrape is old":                    scrape(func(s *Scrape) { s.At = ago(46 * time.Second) }),
		"the scrape says one":                  scrape(func(s *Scrape) { s.Jobs = 1 }),
		"it was never scraped":                 func(f *Facts) { delete(f.Scrapes, "i-1") },
	} {
		t.Run(name, func(t *testing.T) {
			f := hooked()
			without(f)
			for _, m := range Judge(f, t0).Machines {
				require.False(t, m.InstanceID == "i-1" && idle(&m), "%+v", m)
			}
		})
	}
}

func TestWithoutASystemIDAllMachinesTogetherAccountForTheJobs(t *testing.T) {
	unnamed := func() *Facts {
		f := hooked()
		for id, s := range f.Scrapes {
			s.Systems = nil
			f.Scrapes[id] = s
		}
		return f
	}
	require.True(t, idle(ptr(judged(t, unnamed(), "i-1"))))

	f := unnamed()
	f.Runners["7"] = Runner{At: t0, Whole: true, Running: 2}
	require.False(t, idle(ptr(judged(t, f, "i-1"))), "one job more than anybody admits to")
	require.Contains(t, Judge(f, t0).Unaccounted, "GitLab shows 2 running jobs, and the machines that are heard 1")

	f = unnamed()
	f.Instances = append(f.Instances, Instance{ID: "i-3", Running: true})
	require.False(t, idle(ptr(judged(t, f, "i-1"))), "an instance that was never scraped may have the job")
	f.Instances[2].Running = false
	require.True(t, idle(ptr(judged(t, f, "i-1"))), "one that comes or goes says nothing")
	f.ListedAt = time.Time{}
	require.False(t, idle(ptr(judged(t, f, "i-1"))), "without a list nobody knows who all are")
}

func TestGitLabsWordOfABusyMachineIsContact(t *testing.T) {
	f := hooked()
	f.Scrapes["i-1"] = Scrape{At: ago(10 * time.Minute), FirstAt: ago(50 * time.Minute), Systems: []string{"s-1"}}
	f.Runners["7"] = Runner{At: ago(5 * time.Second), Whole: true, Running: 1, BySystem: map[string]int{"s-1": 1}}
	m := judged(t, f, "i-1")
	require.Equal(t, 1, m.Busy)
	require.Equal(t, ago(5*time.Second), m.HeardAt, "it is not silent: it works, and its metrics are gone")
}

func TestAHookDrainsByBeingOrdered(t *testing.T) {
	f := hooked()
	f.Drains["i-1"] = router.DrainOrder{Machine: "i-1", On: true, At: ago(11 * time.Second)}
	m := judged(t, f, "i-1")
	require.True(t, m.Draining)
	require.Equal(t, ago(11*time.Second), m.DrainAckedAt)
	require.True(t, m.HeartbeatAt.After(m.DrainAckedAt), "both facts are newer than the order")
	for name, change := range map[string]func(*Facts){
		"no hook was found": func(f *Facts) { f.HookVerified = false },
		"it drains by none": func(f *Facts) { f.Drain = DrainNone },
	} {
		t.Run(name, func(t *testing.T) {
			change(f)
			m := judged(t, f, "i-1")
			require.True(t, m.Draining)
			require.Zero(t, m.DrainAckedAt)
		})
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"nothing drains":            {func(f *Facts) { f.Drain = DrainNone }, "set observe.drain"},
		"no hook":                   {func(f *Facts) { f.HookVerified = false }, "no terminating hook"},
		"no metrics":                {func(f *Facts) { f.Scrapes = nil }, "set observe.metrics"},
		"no API":                    {func(f *Facts) { f.Runners = nil }, "set gitlab.api_token"},
		"no sidecar is heard":       {func(f *Facts) { f.Drain = DrainSidecar }, "--sidecar"},
		"one path without GitLab":   {func(f *Facts) { f.Mode, f.Runners = RouteOne, nil }, "set gitlab.api_token"},
		"one path without metrics":  {func(f *Facts) { f.Mode, f.Scrapes = RouteOne, nil }, "set observe.metrics"},
		"a hook, metrics and API":   {func(*Facts) {}, ""},
		"sidecars, and none so far": {func(f *Facts) { f.Drain, f.Instances = DrainSidecar, nil }, ""},
		"one sidecar": {func(f *Facts) {
			f.Drain, f.Streams = DrainNone, []router.Machine{{ID: "m", InstanceID: "i-1", HeartbeatAt: t0}}
		}, ""},
		"route": {func(f *Facts) { f.Mode, f.Drain = RouteFront, DrainNone }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := hooked()
			c.change(f)
			if got := Judge(f, t0).CannotDrain; c.want == "" {
				require.Empty(t, got)
			} else {
				require.Contains(t, got, c.want)
			}
		})
	}
}

func TestASidecarWinsOverWhatIsScraped(t *testing.T) {
	f := hooked()
	f.Runners = nil
	side := router.Machine{ID: "m-1", InstanceID: "i-1", Pool: "p", Capacity: 2, Connected: true, HeardAt: t0, HeartbeatAt: t0, RegisteredAt: ago(time.Hour), DrainAckedAt: t0, Draining: true}
	old := side
	old.ID, old.RegisteredAt, old.Busy = "m-0", ago(2*time.Hour), 1
	f.Streams = []router.Machine{old, side}
	require.Equal(t, side, judged(t, f, "i-1"), "its own word is enough, of the process that runs now")
	require.Len(t, Judge(f, t0).Machines, 2)
}

func TestAPoolThatNobodyCanHearOfServesByTheGroupsWord(t *testing.T) {
	f := hooked()
	f.Scrapes, f.Runners, f.Drain = nil, nil, DrainNone
	f.Instances = append(f.Instances, Instance{ID: "i-3"})
	v := Judge(f, t0)
	require.Len(t, v.Machines, 2, "what is still being created doesn't serve")
	require.Equal(t, router.Machine{
		ID: "i-1", InstanceID: "i-1", Pool: "p", Capacity: 2, Connected: true, HeardAt: ago(time.Second),
		RegisteredAt: ago(time.Hour), LastUsedAt: ago(time.Hour),
	}, v.Machines[0])
	require.Contains(t, v.Unaccounted, "GitLab isn't asked")
	f.Drain = DrainSidecar
	require.Empty(t, Judge(f, t0).Machines, "where sidecars are expected, an instance boots until one is heard")
}

func TestC20_DeletedAndPausedRunners(t *testing.T) {
	f := hooked()
	f.Runners["7"] = Runner{At: t0, Deleted: true, Systems: []string{"s-1", "s-2"}}
	v := Judge(f, t0)
	for _, m := range v.Machines {
		require.Contains(t, m.Unhealthy, "deleted in GitLab")
		require.Equal(t, "GitLab", m.UnhealthyBy)
	}
	require.True(t, idle(&v.Machines[0]), "it gets no job any more, and its own side says that none is left")
	require.False(t, idle(&v.Machines[1]))
	require.Contains(t, v.CannotServe, "1 are deleted and 0 paused")

	f.Runners["7"] = Runner{At: t0, Whole: true, Running: 1, BySystem: map[string]int{"s-2": 1}, Paused: true}
	v = Judge(f, t0)
	require.True(t, v.Machines[0].Paused)
	require.Empty(t, v.Machines[0].Unhealthy)
	require.Contains(t, v.CannotServe, "0 are deleted and 1 paused")

	f.Runners["7"] = Runner{At: t0, Whole: true, Running: 1, BySystem: map[string]int{"s-2": 1}, Systems: []string{"s-2"}}
	v = Judge(f, t0)
	require.Contains(t, v.Machines[0].Unhealthy, "doesn't list it")
	require.Equal(t, "GitLab", v.Machines[0].UnhealthyBy)
	require.Empty(t, v.Machines[1].Unhealthy)
	require.Empty(t, v.CannotServe)
	f.Scrapes["i-1"] = Scrape{At: t0, FirstAt: ago(10 * time.Minute), Systems: []string{"s-1"}}
	require.Empty(t, Judge(f, t0).Machines[0].Unhealthy, "a list may lag")
	f.Scrapes["i-1"] = Scrape{At: t0, FirstAt: ago(10*time.Minute + 1), Systems: []string{"s-1"}}
	require.NotEmpty(t, Judge(f, t0).Machines[0].Unhealthy)

	f.Runners = map[string]Runner{ // each instance has its own
		"1": {At: t0, Deleted: true, Systems: []string{"s-1"}},
		"2": {At: t0, Whole: true, Running: 1, BySystem: map[string]int{"s-2": 1}, Paused: true, Systems: []string{"s-2"}},
		"3": {At: t0, Whole: true},
	}
	v = Judge(f, t0)
	require.NotEmpty(t, v.Machines[0].Unhealthy)
	require.False(t, v.Machines[0].Paused)
	require.True(t, v.Machines[1].Paused)
	require.Empty(t, v.CannotServe, "the third is none of them")
}

func TestStreamsAreAllThereIsWhereWeAssign(t *testing.T) {
	m := router.Machine{ID: "b", Pool: "p"}
	v := Judge(&Facts{Mode: Orchestrate, Streams: []router.Machine{m, {ID: "a"}}}, t0)
	require.Equal(t, Verdict{Machines: []router.Machine{{ID: "a"}, m}}, v)
}

// asking is a pool in route mode with one machine, whose book is older than it.
func asking(mode Mode) *Facts {
	return &Facts{
		Pool: "p", Mode: mode, Capacity: 2, Fresh: 45 * time.Second, ListedAt: t0, BookSince: ago(2 * time.Hour),
		Instances: []Instance{{ID: "i-1", LaunchedAt: ago(time.Hour), Running: true}},
		Routed: []Routed{{
			Machine: router.Machine{ID: "s-1", InstanceID: "i-1", Pool: "p", Capacity: 2, Connected: true, HeardAt: ago(3 * time.Second), RegisteredAt: ago(50 * time.Minute)},
			Uses:    3, LastUsedAt: ago(10 * time.Minute), ReadAt: ago(time.Second),
		}},
	}
}

func TestTheBookProvesWhereEverythingPassesThroughUs(t *testing.T) {
	f := asking(RouteFront)
	f.Drains = map[string]router.DrainOrder{"s-1": {Machine: "s-1", On: true, At: ago(2 * time.Second)}}
	require.Equal(t, router.Machine{
		ID: "s-1", InstanceID: "i-1", Pool: "p", Capacity: 2, Connected: true, HeardAt: ago(3 * time.Second), HeartbeatAt: ago(time.Second),
		RegisteredAt: ago(50 * time.Minute), LastUsedAt: ago(10 * time.Minute), Uses: 3, Draining: true, DrainAckedAt: ago(2 * time.Second),
	}, judged(t, f, "i-1"), "an order is obeyed by its being given")
	require.Empty(t, Judge(f, t0).CannotDrain)
	require.Empty(t, Judge(f, t0).Unaccounted, "no job is anywhere but in the book")

	f.Routed[0].Open = 1
	f.Routed[0].Machine.HeardAt = ago(20 * time.Minute)
	m := judged(t, f, "i-1")
	require.Equal(t, 1, m.InUse())
	require.Equal(t, ago(time.Second), m.HeardAt, "a runner at its limit does not ask")
	f.Instances = nil
	require.Equal(t, ago(10*time.Minute), judged(t, f, "i-1").HeardAt, "when it was given its last job: nor does one whose instance is gone, with a job that nobody ends")
	f.ListedAt = time.Time{}
	require.Equal(t, ago(time.Second), judged(t, f, "i-1").HeardAt, "without a list nobody knows that")
	f = asking(RouteFront)

	f.Routed[0].Open, f.Routed[0].ReadAt = 0, ago(46*time.Second)
	require.False(t, idle(ptr(judged(t, f, "i-1"))), "it was read too long ago")
}

func TestABookThatBeganLaterProvesLess(t *testing.T) {
	late := func(change func(*Facts)) bool {
		f := asking(RouteFront)
		f.BookSince = ago(30 * time.Minute) // the store was lost
		change(f)
		return idle(ptr(judged(t, f, "i-1")))
	}
	whole := Runner{At: t0, Whole: true}
	require.False(t, late(func(*Facts) {}), "it may have a job from before")
	require.True(t, late(func(f *Facts) { f.Instances[0].LaunchedAt = f.BookSince }), "it can have none from before")
	require.False(t, late(func(f *Facts) { f.Instances[0].LaunchedAt = f.BookSince.Add(-1) }))
	require.False(t, late(func(f *Facts) { f.BookSince = time.Time{} }), "nobody knows since when")
	require.True(t, late(func(f *Facts) { f.Scrapes = map[string]Scrape{"i-1": {At: ago(time.Second)}} }), "its metrics say none")
	require.False(t, late(func(f *Facts) { f.Scrapes = map[string]Scrape{"i-1": {At: ago(time.Second), Jobs: 1}} }))
	require.False(t, late(func(f *Facts) { f.Scrapes = map[string]Scrape{"i-1": {At: ago(time.Minute)}} }))
	require.False(t, late(func(f *Facts) { f.Runners = map[string]Runner{"7": whole} }), "GitLab's list alone may be wrong once")
	listed := func(bySystem map[string]int) bool {
		return late(func(f *Facts) {
			f.BookSince, f.Instances[0].LaunchedAt = ago(bookGrace), ago(3*time.Hour)
			f.Runners = map[string]Runner{"7": {At: t0, Whole: true, Running: len(bySystem), BySystem: bySystem}}
		})
	}
	require.True(t, listed(nil))
	require.False(t, listed(map[string]int{"s-1": 1}))
	require.False(t, listed(map[string]int{"s-2": 1}), "the job that s-2 asked for may have gone to this one")
	require.False(t, late(func(f *Facts) { f.Routed[0].Machine.RegisteredAt = t0 }), "it asks, and has two places")
	require.True(t, late(func(f *Facts) { f.Routed[0].Machine.RegisteredAt, f.Capacity = t0, 1 }), "it asks, and has one place")
	require.True(t, late(func(f *Facts) {
		f.BookSince = ago(spillway.MaxJobTimeout + 1)
		f.Instances[0].LaunchedAt = ago(2 * spillway.MaxJobTimeout)
	}), "no job takes that long")

	f := asking(RouteFront)
	f.BookSince = ago(30 * time.Minute)
	v := Judge(f, t0)
	require.Contains(t, v.CannotDrain, "jobs from before 2026-03-01 11:30:00 may still run")
	require.Contains(t, v.Unaccounted, "when the book of them began")
}

func TestOnOnePathBothMustAgree(t *testing.T) {
	both := func() *Facts {
		f := asking(RouteOne)
		f.Runners = map[string]Runner{"7": {At: ago(5 * time.Second), Whole: true, Systems: []string{"s-1"}}}
		f.Scrapes = map[string]Scrape{"i-1": {At: ago(9 * time.Second), FirstAt: ago(time.Hour)}}
		return f
	}
	m := judged(t, both(), "i-1")
	require.True(t, idle(&m))
	require.Equal(t, ago(9*time.Second), m.HeartbeatAt)
	for name, without := range map[string]func(*Facts){
		"GitLab isn't asked":       func(f *Facts) { f.Runners = nil },
		"GitLab's list is partial": func(f *Facts) { f.Runners["7"] = Runner{At: t0} },
		"GitLab shows a job": func(f *Facts) {
			f.Runners["7"] = Runner{At: t0, Whole: true, Running: 1, BySystem: map[string]int{"s-1": 1}}
		},
		"nothing is scraped":          func(f *Facts) { f.Scrapes = nil },
		"the scrape is old":           func(f *Facts) { f.Scrapes["i-1"] = Scrape{At: ago(time.Minute)} },
		"the scrape says one":         func(f *Facts) { f.Scrapes["i-1"] = Scrape{At: t0, Jobs: 1} },
		"it doesn't say where it is":  func(f *Facts) { f.Routed[0].Machine.InstanceID = "" },
		"two machines are on it":      func(f *Facts) { f.Routed = append(f.Routed, f.Routed[0]); f.Routed[1].Machine.ID = "s-2" },
		"a job was handed to it now":  func(f *Facts) { f.Routed[0].Open, f.Routed[0].LastUsedAt = 1, t0 },
		"one was a while ago, hardly": func(f *Facts) { f.Routed[0].Open, f.Routed[0].LastUsedAt = 1, ago(54*time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			f := both()
			without(f)
			for _, m := range Judge(f, t0).Machines {
				require.False(t, idle(&m), "%+v", m)
			}
		})
	}
	f := both()
	f.Routed[0].Open, f.Routed[0].LastUsedAt = 1, ago(55*time.Second)
	require.True(t, idle(ptr(judged(t, f, "i-1"))), "what both have said long after outvotes a book that sees no end")
	f = both()
	f.Scrapes, f.Streams = nil, []router.Machine{{ID: "side", InstanceID: "i-1", HeartbeatAt: ago(2 * time.Second), Connected: true}}
	require.True(t, idle(ptr(judged(t, f, "i-1"))), "a sidecar is as good as metrics")
	require.Len(t, Judge(f, t0).Machines, 1)
}

func TestWhatIsUpAndDoesNotAskIsNotIdle(t *testing.T) {
	for _, mode := range []Mode{RouteFront, RouteOne} {
		f := asking(mode)
		f.Routed = nil
		f.Scrapes = map[string]Scrape{"i-1": {At: t0, FirstAt: ago(time.Minute)}}
		m := judged(t, f, "i-1")
		require.False(t, idle(&m))
		require.Equal(t, ago(time.Hour), m.RegisteredAt, "so that who asks takes its place")
		f.Scrapes, f.Streams = nil, []router.Machine{{ID: "side", InstanceID: "i-1", HeartbeatAt: t0, HeardAt: t0, RegisteredAt: t0, Connected: true}}
		m = judged(t, f, "i-1")
		require.False(t, idle(&m))
		require.Equal(t, ago(time.Hour), m.RegisteredAt)
	}
}

func TestAMachineThatIsOnNobodyKnowsWhichInstance(t *testing.T) {
	f := asking(RouteFront)
	f.Routed[0].Machine.InstanceID = ""
	require.Contains(t, Judge(f, t0).Unaccounted, "give its runner the label spillway-instance")
}

// A hook stops a runner when its instance is being ended, and not before: a job may
// have come between the last proof and that.
func TestWhileItsHookHoldsAnInstanceOnlyTheEndOfItsRunnerCounts(t *testing.T) {
	f := hooked()
	f.Drains["i-1"] = router.DrainOrder{Machine: "i-1", On: true, At: ago(30 * time.Second)}
	f.Instances[0].Running, f.Instances[0].Ending = false, true
	require.True(t, Judge(f, t0).StoppedByHook)
	require.Zero(t, judged(t, f, "i-1").DrainAckedAt, "it answers: it has not been stopped yet")

	s := f.Scrapes["i-1"]
	s.At = ago(46 * time.Second)
	f.Scrapes["i-1"] = s
	require.Len(t, Judge(f, t0).Machines, 1, "it answers no more, and GitLab shows no job: it has ended")
	f.Runners["7"] = Runner{At: t0, Whole: true, Running: 2, BySystem: map[string]int{"s-1": 1, "s-2": 1}}
	require.Equal(t, 1, judged(t, f, "i-1").Busy, "GitLab shows a job")
	f.Runners["7"] = Runner{At: t0}
	require.Len(t, Judge(f, t0).Machines, 2, "GitLab doesn't say")
	f.Drain = DrainSidecar
	require.False(t, Judge(f, t0).StoppedByHook)
}
