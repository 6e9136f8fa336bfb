package cells_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// I10 across cells, whatever breaks: no job is on two machines at once, and each ends once.
func TestI10_NoJobRunsInTwoCells(t *testing.T) {
	handed, expired, stopped, denied := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.Uint64().Draw(t, "seed"), 6)
		for w.now < 15*time.Minute {
			w.step()
		}
		w.calm = true
		for limit := w.now + time.Hour; w.now < limit && !w.settled(); {
			w.step()
		}
		for id, j := range w.jobs {
			if j.ends != 1 {
				t.Fatalf("job %s has ended %d times after %d attempts", id, j.ends, j.attempt)
			}
		}
		w.requireApart()
		handed, expired, denied = handed+w.handed, expired+w.expired, denied+w.denied
		for _, s := range w.stays {
			if s.stopped {
				stopped++
			}
		}
	})
	require.Positive(t, handed)
	require.Positive(t, expired, "no claim ever expired: the property was not tested")
	require.Positive(t, denied, "no peer ever denied a job")
	require.Positive(t, stopped, "no job was ever ended by its peer")
}

func (w *world) settled() bool {
	for _, j := range w.jobs {
		if j.ends == 0 {
			return false
		}
	}
	return true
}

// requireApart checks that the stays of each job are apart.
func (w *world) requireApart() {
	slices.SortFunc(w.stays, func(a, b *stay) int { return int(a.begin - b.begin) })
	for i, a := range w.stays {
		for _, b := range w.stays[i+1:] {
			if a.ref.ID == b.ref.ID && b.begin < a.end {
				w.t.Fatalf("%s was on a machine of %s from %s to %s, and %s on one of %s from %s on", a.ref, a.peer, a.begin, a.end, b.ref, b.peer, b.begin)
			}
		}
	}
}
