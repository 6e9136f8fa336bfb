package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// experienceModel is what was learned, by which exchange, and how far each replica is.
type experienceModel struct {
	s         *store.Store
	exchanges uint64
	means     map[string]learnedAt[time.Duration]       // by job
	warm      map[int64]learnedAt[[]spillway.MachineID] // by project
	knows     map[string]uint64                         // by replica
}

type learnedAt[T any] struct {
	what T
	at   uint64
}

func experienceActions(s *store.Store, _ *clock) actions {
	m := &experienceModel{
		s: s, means: map[string]learnedAt[time.Duration]{}, warm: map[int64]learnedAt[[]spillway.MachineID]{}, knows: map[string]uint64{},
	}
	return actions{"share": m.share, "start anew": m.restart}
}

// restart has a replica forget all.
func (m *experienceModel) restart(t *rapid.T) { delete(m.knows, letter(t, "replica")) }

func (m *experienceModel) share(t *rapid.T) {
	replica := letter(t, "replica")
	var x router.Experience
	for range rapid.IntRange(0, 3).Draw(t, "durations") {
		x.Durations = append(x.Durations, router.LearnedDuration{
			Pool: "p", Job: letter(t, "job"), Mean: time.Duration(rapid.IntRange(1, 9_000).Draw(t, "ms")) * time.Millisecond,
		})
	}
	if rapid.Bool().Draw(t, "warm") {
		machines := []spillway.MachineID{spillway.MachineID(letter(t, "machine"))}
		x.Warm = []router.LearnedWarm{{Project: int64(rapid.IntRange(1, 3).Draw(t, "project")), Machines: machines}}
	}
	got, number, err := m.s.ShareExperience(t.Context(), m.knows[replica], x)
	require.NoError(t, err)
	m.exchanges++
	require.Equal(t, m.exchanges, number)
	m.checkTold(t, m.knows[replica], got)
	m.knows[replica] = number
	for _, d := range x.Durations {
		m.means[d.Job] = learnedAt[time.Duration]{d.Mean, number}
	}
	for _, w := range x.Warm {
		m.warm[w.Project] = learnedAt[[]spillway.MachineID]{w.Machines, number}
	}
}

func (m *experienceModel) checkTold(t *rapid.T, since uint64, got router.Experience) {
	var want router.Experience
	for job, l := range m.means {
		if l.at > since {
			want.Durations = append(want.Durations, router.LearnedDuration{Pool: "p", Job: job, Mean: l.what})
		}
	}
	for project, l := range m.warm {
		if l.at > since {
			want.Warm = append(want.Warm, router.LearnedWarm{Project: project, Machines: l.what})
		}
	}
	require.ElementsMatch(t, want.Durations, got.Durations)
	require.ElementsMatch(t, want.Warm, got.Warm)
}

func FuzzDecodeExperience(f *testing.F) {
	f.Add("d linux unit tests", "1200")
	f.Add("w cache", `["m1","m2"]`)
	f.Add("p 7", `["m1"]`)
	f.Add("p -7", `{}`)
	f.Add("d x", "-1")
	f.Fuzz(func(t *testing.T, name, content string) {
		var x router.Experience
		store.DecodeLearned(&x, name, content)
		for _, d := range x.Durations {
			require.GreaterOrEqual(t, d.Mean, time.Duration(0))
			require.LessOrEqual(t, d.Mean, spillway.MaxJobTimeout)
		}
		for _, w := range x.Warm {
			require.NotEmpty(t, w.Machines)
			require.True(t, (w.Word == "") != (w.Project == 0))
		}
		require.LessOrEqual(t, len(x.Durations)+len(x.Warm), 1)
	})
}
