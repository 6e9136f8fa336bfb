package store_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// modelAges are the times for which the model's queue is counted.
var modelAges = []time.Duration{3 * time.Second, 12 * time.Second}

// check compares everything that can be seen.
func (m *queueModel) check(t *rapid.T) {
	m.checkCounts(t)
	m.checkRecords(t)
	m.hear()
}

// checkCounts compares the counts of each class.
func (m *queueModel) checkCounts(t *rapid.T) {
	counts, err := m.s.Counts(t.Context())
	require.NoError(t, err)
	got := map[spillway.JobClass]router.ClassCount{}
	for _, c := range counts {
		c.Oldest = c.Oldest.Truncate(time.Millisecond) // where the model's clock stops
		got[c.Class] = c
	}
	want := map[spillway.JobClass]router.ClassCount{}
	for _, tag := range modelTags {
		if c := m.count(tag); c.Pending+c.Unadmitted+c.Claimed > 0 {
			want[c.Class] = c
		}
	}
	require.Equal(t, want, got)
}

func (m *queueModel) count(tag string) router.ClassCount {
	c := router.ClassCount{
		Class: modelClass(tag), Requirement: spillway.Requirement{Tags: []string{tag}},
		Waited: []demand.Waited{{For: modelAges[0]}, {For: modelAges[1]}},
	}
	c.Claimed = len(m.in(spillway.Assigned, tag)) + len(m.in(spillway.Running, tag))
	claimable := append(m.in(spillway.Pending, tag), m.in(spillway.Admitted, tag)...)
	routing := m.in(spillway.Routing, tag)
	c.Admitted, c.Pending, c.Unadmitted = len(m.in(spillway.Admitted, tag)), len(claimable), len(routing)
	for i, j := range append(slices.Clip(claimable), routing...) {
		at := j.submitted.Truncate(time.Millisecond)
		if i == 0 || at.Before(c.Oldest) {
			c.Oldest = at
		}
		if i == 0 || j.job.Priority < c.Priority {
			c.Priority = j.job.Priority
		}
	}
	for _, j := range claimable {
		for i, age := range modelAges {
			if !j.submitted.After(m.clock.now().Add(-age)) {
				c.Waited[i].Jobs++
			}
		}
	}
	return c
}

// checkRecords compares the record of each job.
func (m *queueModel) checkRecords(t *rapid.T) {
	ids := []spillway.JobID{"31"}
	_, err := m.s.Get(t.Context(), ids[0])
	require.ErrorIs(t, err, store.ErrUnknownJob)
	for id := range m.jobs {
		ids = append(ids, id)
	}
	records, err := m.s.GetMany(t.Context(), ids)
	require.NoError(t, err)
	require.Nil(t, records[0], "nobody has pushed it")
	for i, r := range records[1:] {
		id := ids[i+1]
		j := m.jobs[id]
		require.Equal(t, j.state, r.State, "job %s", id)
		require.Equal(t, j.attempt, r.Attempt, "job %s", id)
		require.Equal(t, j.lost, r.Lost, "job %s", id)
		require.Equal(t, !j.quarantined.IsZero(), r.Quarantined, "job %s", id)
		require.Equal(t, j.result.Reason, r.Result.Reason, "job %s", id)
		require.Equal(t, int64(len(j.way)), r.Sequence(), "job %s", id)
		require.Len(t, r.Transitions, min(len(j.way), spillway.MaxTransitions), "job %s", id)
		for i, tr := range r.Transitions {
			require.Equal(t, r.Sequence()-int64(len(r.Transitions)-1-i), tr.Sequence, "job %s", id)
			require.Equal(t, j.way[tr.Sequence-1], tr.State, "job %s", id)
		}
		require.WithinDuration(t, j.submitted, r.Job.SubmittedAt, time.Millisecond)
	}
}

// checkLists compares what is listed, page by page, and in which order.
func (m *queueModel) checkLists(t *rapid.T) {
	all, pending, kept := []*modelJob{}, []*modelJob{}, []*modelJob{}
	for _, j := range m.jobs {
		all = append(all, j)
		if j.state == spillway.Pending {
			pending = append(pending, j)
		}
		if !j.quarantined.IsZero() {
			kept = append(kept, j)
		}
	}
	newest := func(a, b *modelJob) int { return b.seq - a.seq }
	slices.SortFunc(all, newest)
	slices.SortFunc(pending, newest)
	slices.SortFunc(kept, func(a, b *modelJob) int {
		return cmp.Or(b.quarantined.Compare(a.quarantined), cmp.Compare(b.job.ID, a.job.ID))
	})
	list := func(states ...spillway.JobState) pager {
		return func(limit int, token string) ([]spillway.JobRecord, string, error) {
			return m.s.List(t.Context(), states, limit, token)
		}
	}
	require.Equal(t, modelIDs(all), pages(t, 100, list()))
	require.Equal(t, modelIDs(pending), pages(t, 7, list(spillway.Pending)))
	require.Equal(t, modelIDs(kept), pages(t, 1, func(limit int, token string) ([]spillway.JobRecord, string, error) {
		return m.s.Quarantined(t.Context(), limit, token)
	}))
}

func modelIDs(jobs []*modelJob) (ids []spillway.JobID) {
	for _, j := range jobs {
		ids = append(ids, j.job.ID)
	}
	return ids
}

type pager func(limit int, token string) ([]spillway.JobRecord, string, error)

// pages reads a list to its end.
func pages(t *rapid.T, limit int, page pager) (ids []spillway.JobID) {
	for token := ""; ; {
		records, next, err := page(limit, token)
		require.NoError(t, err)
		require.LessOrEqual(t, len(records), limit)
		ids = append(ids, recordIDs(records)...)
		if next == "" {
			return ids
		}
		token = next
	}
}

// listeners hear what a store tells, and what they should have heard.
type listeners struct {
	events  <-chan store.EventBatch
	stops   <-chan []spillway.JobID
	pokes   <-chan struct{}
	told    map[spillway.JobID][]spillway.JobState
	stopped []spillway.JobID // heard
	toStop  []spillway.JobID // expected
}

// listen begins to hear, and has the queue counted as check does.
func (m *queueModel) listen(t *rapid.T) {
	m.s.CountAges(modelAges)
	m.heard.told = map[spillway.JobID][]spillway.JobState{}
	var err error
	m.heard.events, err = m.s.Subscribe(t.Context())
	require.NoError(t, err)
	m.heard.stops, err = m.s.Canceled(t.Context())
	require.NoError(t, err)
	m.heard.pokes, err = m.s.Pokes(t.Context())
	require.NoError(t, err)
}

// stop: a job was canceled that somebody had claimed.
func (l *listeners) stop(id spillway.JobID) { l.toStop = append(l.toStop, id) }

// hear takes what has come, so that no listener is too slow.
func (m *queueModel) hear() {
	for {
		select {
		case b := <-m.heard.events:
			for _, e := range b.Events {
				m.heard.told[e.Record.Job.ID] = append(m.heard.told[e.Record.Job.ID], e.Record.State)
			}
		case ids := <-m.heard.stops:
			m.heard.stopped = append(m.heard.stopped, ids...)
		default:
			return
		}
	}
}

// hearAll waits until everything was heard.
func (m *queueModel) hearAll(t *rapid.T) {
	want := map[spillway.JobID][]spillway.JobState{}
	for id, j := range m.jobs {
		want[id] = j.way
	}
	require.Eventually(t, func() bool {
		m.hear()
		n := 0
		for _, way := range m.heard.told {
			n += len(way)
		}
		for _, way := range want {
			n -= len(way)
		}
		return n >= 0 && len(m.heard.stopped) >= len(m.heard.toStop)
	}, soon, time.Millisecond)
	require.Equal(t, want, m.heard.told)
	require.Equal(t, m.heard.toStop, m.heard.stopped)
	if len(m.jobs) > 0 {
		select {
		case <-m.heard.pokes:
		case <-time.After(soon):
			require.FailNow(t, "nobody was told of new jobs")
		}
	}
}
