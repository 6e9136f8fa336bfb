package demand_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
)

var t0 = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)

func class(pending int, tags ...string) demand.Class {
	r := spillway.Requirement{Tags: tags}
	return demand.Class{ID: r.Class(), Requirement: r, Pending: pending, Oldest: t0}
}

func pool(name string, tags ...string) demand.Supply {
	return demand.Supply{Pool: name, Capability: spillway.Capability{Tags: tags, RunUntagged: true}}
}

func with(s demand.Supply, change func(*demand.Supply)) demand.Supply {
	change(&s)
	return s
}

func TestC08AJobThatTwoPoolsMatchCountsOnce(t *testing.T) {
	a := with(pool("a", "docker"), func(s *demand.Supply) { s.Launchable = 3 })
	b := with(pool("b", "docker"), func(s *demand.Supply) { s.Launchable = 10 })
	got := demand.Attribute([]demand.Class{class(6, "docker")}, []demand.Supply{b, a}, match)
	require.Equal(t, 3, got.Pools["a"].Total(), "the name breaks the tie: a is filled first")
	require.Equal(t, 3, got.Pools["b"].Total())
	require.Empty(t, got.Overflow)
}

func TestC17IdleRunnersOfAnotherKindDoNotHideDemand(t *testing.T) {
	amd := with(pool("amd", "amd64"), func(s *demand.Supply) { s.Free, s.Launchable = 3, 7 })
	arm := with(pool("arm", "arm64"), func(s *demand.Supply) { s.Launchable = 10 })
	got := demand.Attribute([]demand.Class{class(2, "arm64")}, []demand.Supply{amd, arm}, match)
	require.Equal(t, demand.PoolShare{Launch: 2}, got.Pools["arm"])
	require.Zero(t, got.Pools["amd"])
}

func TestC17UnmatchedNamesWhatIsMissingAtTheNearestPool(t *testing.T) {
	protectedGPU := with(pool("gpu", "gpu"), func(s *demand.Supply) { s.Capability.Protected = true })
	cpu := pool("cpu", "docker", "linux")
	secret := with(pool("secret", "docker"), func(s *demand.Supply) { s.Capability.Protected = true })
	picky := with(pool("picky", "x"), func(s *demand.Supply) { s.Capability.RunUntagged = false })
	scoped := with(pool("scoped", "gpu"), func(s *demand.Supply) {
		s.Capability.Type, s.Capability.Projects = spillway.ProjectType, []int64{7}
	})
	big := class(1, "docker")
	big.Requirement.Resources.MemoryMiB = 1 << 20
	bigGPU := class(1, "gpu")
	bigGPU.Requirement.Resources.MemoryMiB = 1 << 20
	scopedBig := with(scoped, func(s *demand.Supply) { s.Pool, s.Capability.Resources.MemoryMiB = "a-scoped", 1<<20 })
	for name, c := range map[string]struct {
		class     demand.Class
		pools     []demand.Supply
		predicate string
		pool      string
		detail    string
	}{
		"no pool at all":                                {class(1, "gpu"), nil, demand.NoPool, "", "no pool"},
		"no pool with the tags":                         {class(1, "gpu"), []demand.Supply{cpu, secret}, demand.NoPoolWithTags, "cpu", `lacks "gpu"`},
		"only a protected one has them":                 {class(1, "gpu"), []demand.Supply{cpu, protectedGPU}, "protected", "gpu", "protected jobs only"},
		"protected and without the tags":                {class(1, "gpu"), []demand.Supply{secret}, demand.NoPoolWithTags, "secret", `lacks "gpu"`},
		"one tag missing beats two":                     {class(1, "linux", "arm", "docker"), []demand.Supply{secret, cpu}, demand.NoPoolWithTags, "cpu", `lacks "arm"`},
		"differs in case":                               {class(1, "Docker"), []demand.Supply{cpu}, demand.NoPoolWithTags, "cpu", "only in case"},
		"an untagged job":                               {class(1), []demand.Supply{picky}, "untagged", "picky", "tagged jobs only"},
		"out of scope":                                  {class(1, "gpu"), []demand.Supply{cpu, scoped}, "scope", "scoped", "scope"},
		"too little memory, nearest":                    {big, []demand.Supply{cpu, secret}, "resources", "cpu", "less than it asks"},
		"a bigger machine is nearer than another scope": {bigGPU, []demand.Supply{scopedBig, pool("small", "gpu")}, "resources", "small", "less than it asks"},
		"many missing tags are cut short":               {class(1, "a", "b", "c", "d", "e", "f", "g"), []demand.Supply{cpu}, demand.NoPoolWithTags, "cpu", "and 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			got := demand.Attribute([]demand.Class{c.class}, c.pools, match)
			require.Len(t, got.Unmatched, 1)
			require.Equal(t, c.predicate, got.Unmatched[0].Predicate)
			require.Equal(t, c.pool, got.Unmatched[0].Pool)
			require.Contains(t, got.Unmatched[0].Detail, c.detail)
			require.Equal(t, 1, got.Unmatched[0].Jobs)
			require.Empty(t, got.Flows)
			require.Empty(t, got.Overflow)
		})
	}
}

func TestUnknownPredicateIsReportedAsItIs(t *testing.T) {
	moon := func(*spillway.Capability, *spillway.Requirement) (bool, string) { return false, "moon_phase" }
	got := demand.Attribute([]demand.Class{class(1, "a")}, []demand.Supply{pool("p", "a")}, moon)
	require.Equal(t, "moon_phase", got.Unmatched[0].Predicate)
}

func TestC03BootingInstancesCoverWaitingJobs(t *testing.T) {
	p := with(pool("p", "docker"), func(s *demand.Supply) { s.Booting, s.Launchable = 30, 10 })
	got := demand.Attribute([]demand.Class{class(40, "docker")}, []demand.Supply{p}, match)
	require.Equal(t, demand.PoolShare{Coming: 30, Launch: 10}, got.Pools["p"])
	p.Booting = 45
	got = demand.Attribute([]demand.Class{class(40, "docker")}, []demand.Supply{p}, match)
	require.Equal(t, demand.PoolShare{Coming: 40}, got.Pools["p"], "nothing is launched twice")
}

func TestC04OwnDrainsComeBeforeLaunches(t *testing.T) {
	p := with(pool("p", "docker"), func(s *demand.Supply) { s.Draining, s.Launchable = 2, 10 })
	got := demand.Attribute([]demand.Class{class(2, "docker")}, []demand.Supply{p}, match)
	require.Equal(t, demand.PoolShare{Coming: 2}, got.Pools["p"])
}

func TestC06JobsBeyondMaxOverflowAndAreNotLost(t *testing.T) {
	p := with(pool("p", "docker"), func(s *demand.Supply) { s.Launchable = 15 })
	got := demand.Attribute([]demand.Class{class(25, "docker")}, []demand.Supply{p}, match)
	require.Equal(t, demand.PoolShare{Launch: 15, Beyond: 10}, got.Pools["p"])
	require.Equal(t, []demand.Overflow{{Class: 0, Jobs: 10}}, got.Overflow)
}

func TestC28ACooledOffPoolSpillsToTheNext(t *testing.T) {
	first := with(pool("first", "docker"), func(s *demand.Supply) { s.Launchable, s.CooledOff, s.Booting = 10, true, 1 })
	second := with(pool("second", "docker"), func(s *demand.Supply) { s.Launchable, s.Priority = 10, 1 })
	got := demand.Attribute([]demand.Class{class(4, "docker")}, []demand.Supply{second, first}, match)
	require.Equal(t, demand.PoolShare{Coming: 1}, got.Pools["first"], "what boots already still counts")
	require.Equal(t, demand.PoolShare{Launch: 3}, got.Pools["second"])
}

func TestEarlierFlowIsMovedNotLost(t *testing.T) {
	// a is first by priority and takes both classes, b only plain jobs. The plain job
	// goes to a's free place; for the special one to be placed, it must move to b.
	a := with(pool("a", "plain", "special"), func(s *demand.Supply) { s.Free = 1 })
	b := with(pool("b", "plain"), func(s *demand.Supply) { s.Booting, s.Priority = 1, 1 })
	plain, special := class(1, "plain"), class(1, "special")
	plain.Oldest = t0.Add(-time.Minute)
	got := demand.Attribute([]demand.Class{plain, special}, []demand.Supply{a, b}, match)
	require.Equal(t, []demand.Flow{
		{Class: 0, Pool: "b", Stage: demand.ComingPlaces, Jobs: 1},
		{Class: 1, Pool: "a", Stage: demand.FreePlaces, Jobs: 1},
	}, got.Flows)
}

func TestTiesGoToTheCheaperPool(t *testing.T) {
	dear := with(pool("a", "x"), func(s *demand.Supply) { s.Launchable, s.CostPerJob = 5, 2 })
	cheap := with(pool("b", "x"), func(s *demand.Supply) { s.Launchable, s.CostPerJob = 5, 1 })
	got := demand.Attribute([]demand.Class{class(3, "x")}, []demand.Supply{dear, cheap}, match)
	require.Equal(t, 3, got.Pools["b"].Launch)
	require.Zero(t, got.Pools["a"])
}

func TestWhenPlacesAreShortTheMostUrgentAndOldestGetThem(t *testing.T) {
	p := with(pool("p", "x"), func(s *demand.Supply) { s.Free, s.Launchable = 1, 2 })
	young, old, urgent := class(2, "x"), class(2, "x"), class(1, "x")
	old.Oldest = t0.Add(-time.Hour)
	urgent.Oldest, urgent.Priority = t0.Add(time.Hour), -1
	got := demand.Attribute([]demand.Class{young, old, urgent}, []demand.Supply{p}, match)
	require.Equal(t, []demand.Flow{
		{Class: 1, Pool: "p", Stage: demand.LaunchPlaces, Jobs: 2},
		{Class: 2, Pool: "p", Stage: demand.FreePlaces, Jobs: 1},
	}, got.Flows)
	require.Equal(t, []demand.Overflow{{Class: 0, Jobs: 2}}, got.Overflow)
}

func TestOfOnePoolsPlacesTheMostUrgentClassGetsTheBest(t *testing.T) {
	// only makes x and y two groups; it has no place itself.
	both, only := with(pool("both", "x", "y"), func(s *demand.Supply) { s.Free, s.Launchable = 1, 1 }), pool("only", "x")
	x, y := class(1, "x"), class(1, "y")
	y.Oldest = t0.Add(-time.Minute)
	got := demand.Attribute([]demand.Class{x, y}, []demand.Supply{both, only}, match)
	require.Equal(t, []demand.Flow{
		{Class: 0, Pool: "both", Stage: demand.LaunchPlaces, Jobs: 1},
		{Class: 1, Pool: "both", Stage: demand.FreePlaces, Jobs: 1},
	}, got.Flows)
}

func TestClassesWithoutAnIDAreNotTakenForOne(t *testing.T) {
	x, y := class(1, "x"), class(1, "y")
	x.ID, y.ID = "", ""
	got := demand.Attribute([]demand.Class{x, y}, []demand.Supply{with(pool("p", "x"), func(s *demand.Supply) { s.Free = 2 })}, match)
	require.Equal(t, 1, got.Pools["p"].Free)
	require.Len(t, got.Unmatched, 1)
}

func TestNegativeNumbersCountAsNothing(t *testing.T) {
	p := with(pool("p", "x"), func(s *demand.Supply) { s.Free, s.Booting, s.Draining, s.Launchable = -5, -5, 1, -5 })
	got := demand.Attribute([]demand.Class{class(-3, "x"), class(2, "x")}, []demand.Supply{p}, match)
	require.Equal(t, 1, got.Pools["p"].Total())
	require.Equal(t, []demand.Overflow{{Class: 1, Jobs: 1}}, got.Overflow)
}

func TestSignalsCountAJobForEveryFingerprintThatCanTakeIt(t *testing.T) {
	docker := spillway.Capability{Tags: []string{"docker"}}
	both := spillway.Capability{Tags: []string{"gpu", "docker"}}
	bothAgain := spillway.Capability{Tags: []string{"docker", "gpu", "gpu"}}
	got := demand.Signals([]demand.Class{class(4, "docker"), class(2, "gpu"), class(-1, "gpu")},
		[]demand.Runners{{docker, 0}, {both, 1}, {bothAgain, 1}}, match, t0)
	require.ElementsMatch(t, []spillway.Signal{
		{Fingerprint: docker.Fingerprint(), TotalJobs: 4, At: t0},
		{Fingerprint: both.Fingerprint(), TotalJobs: 6, TotalRunners: 2, DemandPerRunner: 3, At: t0},
	}, got)
	require.Less(t, got[0].Fingerprint.String(), got[1].Fingerprint.String())
}
