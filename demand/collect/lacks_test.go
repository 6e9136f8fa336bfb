package collect

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lacking are the pools that the view is a lower bound for, where it is of these only.
func (r *rig) lacking() map[string]string {
	r.t.Helper()
	v, err := r.sources.Demand(r.t.Context())
	require.NoError(r.t, err)
	if v.Partial {
		require.Empty(r.t, v.Lacking, "not of every pool")
		require.NotEmpty(r.t, v.LackingPools)
	}
	return v.LackingPools
}

// One runner token that GitLab refuses leaves the other tokens' pools alone.
func TestARefusedTokenLacksItsPoolsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Bool
		r := start(t, newMemory(), "one", nil, Options{Held: new(kept), HeldLacks: func() map[string]string {
			if !refused.Load() {
				return nil
			}
			return map[string]string{"gpu": "GitLab refuses it", "gpu-spot": "GitLab refuses it"}
		}})
		pass(heldWarmup + DefaultEvery)
		r.requireDemand(map[string]int{})
		refused.Store(true)
		pass(DefaultEvery + heldEvery)
		require.Equal(t, map[string]string{"gpu": "GitLab refuses it", "gpu-spot": "GitLab refuses it"}, r.lacking())
		require.Equal(t, "pool gpu, gpu-spot: GitLab refuses it", r.board().Why)
		require.True(t, r.status("gitlab").Partial, "an older replica takes it for a lower bound of all")
		refused.Store(false)
		pass(DefaultEvery + heldEvery)
		r.requireDemand(map[string]int{}, "still asked, still nothing")
	})
}

// More may wait behind a job that is held, for the pools of its token.
func TestAHeldJobLacksThePoolsOfItsTokenOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := new(kept)
		r := start(t, newMemory(), "one", nil, Options{Held: k})
		pass(heldWarmup + DefaultEvery)
		k.setFor([]string{"gpu"}, pending(1, 0, "a"), pending(2, 0, "a"))
		r.source.HeldChanged()
		settle()
		require.Equal(t, map[string]string{"gpu": moreMayWait(2)}, r.lacking())
		jobs, _ := r.demand()
		require.Equal(t, map[string]int{"[a]": 2}, jobs)

		k.set(pending(3, 0, "a")) // of a token that no pool has any more
		r.source.HeldChanged()
		settle()
		v, err := r.sources.Demand(t.Context())
		require.NoError(t, err)
		require.Contains(t, v.Lacking[origin], "it is not known for which pools")
		require.Empty(t, v.LackingPools)
	})
}

// A replica of before that names no pools holds them all, as it did.
func TestAReplicaThatNamesNoPoolsLacksAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := new(kept)
		r := start(t, newMemory(), "one", nil, Options{Held: k})
		pass(heldWarmup + DefaultEvery)
		k.setFor([]string{"gpu"}, pending(1, 0, "a"))
		require.NoError(t, tell(t.Context(), r.member, message{Replica: "two", Jobs: []Sighting{pending(2, 0, "a")}}))
		r.source.HeldChanged()
		settle()
		v, err := r.sources.Demand(t.Context())
		require.NoError(t, err)
		require.Contains(t, v.Lacking[origin], "2 jobs are held")
	})
}

func TestLacksThatFindNoRoomAreOfAllPools(t *testing.T) {
	pools := map[string]string{}
	g := &GitLab{o: Options{HeldLacks: func() map[string]string { return pools }}}
	for i := 0; ; i++ {
		pools[fmt.Sprintf("pool-%04d", i)] = "it"
		lacks, problem := g.heldLacks(nil)
		data, err := json.Marshal(lacksOf(pools))
		require.NoError(t, err)
		if len(data) <= maxLacksBytes {
			require.Empty(t, problem)
			require.Len(t, lacks[0].Pools, i+1)
			continue
		}
		require.Empty(t, lacks)
		require.Equal(t, fmt.Sprintf("it is not known of %d pools whether more jobs wait for them", i+1), problem)
		break
	}
	require.Equal(t, []string{fmt.Sprintf("pool pool-0000, pool-0001, pool-0002, pool-0003, pool-0004 and %d more: it", len(pools)-5)}, tellLacks(pools))
}

func TestWhatAReplicaLacksComesBeforeItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory().member()
		facts, err := m.Facts(t.Context(), Topic)
		require.NoError(t, err)
		lacks := []lack{{Why: strings.Repeat("x", maxProblemBytes), Pools: []string{"gpu"}}}
		long := pending(1, 1, strings.Repeat("x", maxMessageBytes-500))
		require.NoError(t, tell(t.Context(), m, message{Replica: "one", Lacks: lacks, Jobs: []Sighting{long}}))
		require.Len(t, facts, 2)
		first, ok := hear(<-facts)
		require.True(t, ok)
		require.Equal(t, message{Replica: "one", Lacks: lacks}, first)
		second, ok := hear(<-facts)
		require.True(t, ok)
		require.Empty(t, second.Replica, "it says nothing of the replica, and takes nothing back")
		require.Len(t, second.Jobs, 1)
	})
}

func TestABoardThatLeavesClassesOutIsALowerBoundForAll(t *testing.T) {
	b := Board{Partial: true, Lacks: map[string]string{"gpu": "it"}, Classes: []Waiting{{Pending: 1}, {Pending: -1}}}
	read, err := decodeBoard(marshal(t, b))
	require.NoError(t, err)
	require.True(t, read.Partial)
	require.Empty(t, read.Lacks)
	data, err := encodeBoard(b, len(marshal(t, b))-1)
	require.NoError(t, err)
	require.NotContains(t, string(data), "gpu")
}

// At a start nobody can have asked GitLab yet: that no board is there is no failure for
// as long as one list takes to come.
func TestNoBoardIsNoFailureBeforeAFirstListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSources(SourcesOptions{Boards: newMemory().member(), Origin: origin, Every: DefaultEvery})
		pass(time.Hour) // nobody reads it
		_, err := s.Board(t.Context())
		require.ErrorIs(t, err, ErrNothingYet)
		pass(DefaultEvery - DefaultDebounce)
		_, err = s.Board(t.Context())
		require.ErrorIs(t, err, ErrNothingYet)
		require.Equal(t, ErrNothingYet.Error(), s.Status()[0].Err)
		pass(time.Millisecond)
		_, err = s.Board(t.Context())
		require.ErrorIs(t, err, errNoBoard)
		require.NotErrorIs(t, err, ErrNothingYet)
	})
}
