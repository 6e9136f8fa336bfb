package cells_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/router"
)

func linux(tags ...string) spillway.Capability {
	return spillway.Capability{Tags: append([]string{"linux"}, tags...)}
}

func TestWhatIsOfferedIsWhatOwnJobsLeave(t *testing.T) {
	list := cells.Offers([]cells.Stock{
		{Capability: linux(), CostPerJob: 3, Free: 5, Room: 10, Waiting: 2},
		{Capability: linux(), CostPerJob: 1, Free: 0, Room: 4, Waiting: 2},
		{Capability: linux(), CostPerJob: 0.5, Free: 1, Waiting: 9},
		{Capability: linux("gpu"), CostPerJob: 7, Free: 1},
		{Capability: spillway.Capability{Tags: []string{"theirs"}, Origin: spillway.CellOrigin}, Free: 100},
		{Capability: spillway.Capability{Tags: []string{"gitlab"}, Origin: "https://gitlab.example"}, Free: 100},
	})
	require.Equal(t, []cells.Offer{
		{Capability: linux().Normalize(), Free: 3, Growth: 12, CostPerJob: 1},
		{Capability: linux("gpu").Normalize(), Free: 1, CostPerJob: 7},
	}, list)
}

func TestOffersAreBounded(t *testing.T) {
	var stock []cells.Stock
	for i := range cells.MaxOffers + 5 {
		stock = append(stock, cells.Stock{Capability: linux(strings.Repeat("x", i+1)), Free: i})
	}
	list := cells.Offers(stock)
	require.Len(t, list, cells.MaxOffers)
	require.Equal(t, cells.MaxOffers+4, list[0].Free, "those with the most places are kept")
}

func TestAnOfferIsAPoolAfterAllOthers(t *testing.T) {
	terms := cells.Terms{Peer: "us", CostFactor: 2, Distance: 0.5, MaxJobs: 7, SpillAfter: time.Minute, StartWithin: time.Hour}
	offer := cells.Offer{Capability: linux(), Free: 3, CostPerJob: 4}
	p := terms.Pool(&offer)
	require.NoError(t, p.Validate())
	require.Equal(t, spillway.MaxPoolPriority, p.Priority)
	require.Less(t, cells.MaxOwnPriority, p.Priority-1)
	require.Equal(t, 8.5, p.CostPerJob)
	require.Equal(t, 7, p.CapacityPerInstance)
	require.Equal(t, time.Minute, p.LeastWait)
	require.Equal(t, "cell-us-"+linux().Fingerprint().Short(), p.Name)
	longest := cells.Terms{Peer: strings.Repeat("n", cells.MaxNameBytes), CostFactor: 1, MaxJobs: 1}
	p = longest.Pool(&offer)
	require.NoError(t, p.Validate(), "the longest name fits")
	for _, bad := range []float64{math.NaN(), math.Inf(1), -1} {
		offer.CostPerJob = bad
		p = terms.Pool(&offer)
		require.NoError(t, p.Validate(), "%g", bad)
		require.Greater(t, p.CostPerJob, 1e9, "whoever can't say what it costs comes last")
	}
}

// No job is handed on: what another cell has handed over fits no pool of other cells.
func TestAJobIsHandedOverOnce(t *testing.T) {
	own, theirs := linux(), linux()
	theirs.Origin = spillway.CellOrigin
	job, handed := spillway.Requirement{Tags: []string{"linux"}}, spillway.Requirement{Tags: []string{"linux"}, Origin: spillway.CellOrigin}
	require.True(t, router.Match(&own, &job).OK())
	require.True(t, router.Match(&theirs, &job).OK())
	require.True(t, router.Match(&own, &handed).OK())
	require.Equal(t, router.PredicateOrigin, router.Match(&theirs, &handed).Predicate)
	gitlab := spillway.Requirement{Tags: []string{"linux"}, Origin: "https://gitlab.example"}
	require.Equal(t, router.PredicateOrigin, router.Match(&theirs, &gitlab).Predicate)
	require.Contains(t, router.Explain(&theirs, &handed).Detail, "another cell")
}

func TestLocalIDs(t *testing.T) {
	ref := cells.Ref{ID: "job-1", Attempt: 3}
	require.Equal(t, spillway.JobID("cell/eu/job-1/3"), cells.LocalID("eu", ref))
	long := cells.Ref{ID: spillway.JobID(strings.Repeat("j", spillway.MaxJobIDBytes)), Attempt: spillway.MaxJobAttempts}
	name := strings.Repeat("n", cells.MaxNameBytes)
	id := cells.LocalID(name, long)
	require.LessOrEqual(t, len(id), spillway.MaxJobIDBytes)
	other := long
	other.ID = other.ID[:len(other.ID)-1] + "k"
	require.NotEqual(t, id, cells.LocalID(name, other))
	job := spillway.Job{ID: id, Script: "true"}
	require.NoError(t, job.Validate())
}

func TestTimingHasBounds(t *testing.T) {
	require.NoError(t, cells.Timing{}.WithDefaults().Validate())
	for _, bad := range []cells.Timing{
		{Lease: cells.MinLease - 1, EndWithin: cells.MinEndWithin},
		{Lease: cells.MaxLease + 1, EndWithin: cells.MinEndWithin},
		{Lease: cells.MinLease, EndWithin: cells.MinEndWithin - 1},
		{Lease: cells.MinLease, EndWithin: cells.MaxEndWithin + 1},
	} {
		require.Error(t, bad.Validate())
	}
	d := cells.Timing{}.WithDefaults()
	const detect, stop = 40 * time.Second, 10 * time.Second // of a machine that has lost its router
	require.GreaterOrEqual(t, d.EndWithin, detect+d.AloneFor()+stop+d.Welcome()+stop, "the longest way to the end of a job")
	require.Greater(t, d.GiveBack(), d.Lease+d.EndWithin)
	require.Less(t, 3*d.BeatEvery(), d.Lease)
}
