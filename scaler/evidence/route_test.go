package evidence

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A machine that was given jobs since the book began may have one from before, too: its
// place is not free, so that a waiting job is not left to it.
func TestAJobFromBeforeTheBookTakesItsPlaceBesideLaterOnes(t *testing.T) {
	inUse := func(change func(*Facts)) int {
		f := asking(RouteFront)
		f.BookSince = ago(30 * time.Minute) // the store was lost
		f.Routed[0].Open, f.Routed[0].LastUsedAt = 1, ago(20*time.Second)
		f.Runners = map[string]Runner{"7": {At: ago(10 * time.Second), Whole: true, Running: 2, BySystem: map[string]int{"s-1": 2}}}
		change(f)
		m := judged(t, f, "i-1")
		require.Equal(t, ago(time.Second), m.HeartbeatAt, "that it is busy is known")
		return m.InUse()
	}
	list := func(change func(*Runner)) func(*Facts) {
		return func(f *Facts) {
			r := f.Runners["7"]
			change(&r)
			f.Runners["7"] = r
		}
	}
	require.Equal(t, 2, inUse(func(*Facts) {}))
	require.Equal(t, 1, inUse(func(f *Facts) { f.Instances[0].LaunchedAt = f.BookSince }), "it can have none from before")
	require.Equal(t, 1, inUse(func(f *Facts) { f.Runners = nil }))
	require.Equal(t, 1, inUse(list(func(r *Runner) { r.Whole = false })))
	require.Equal(t, 1, inUse(list(func(r *Runner) { r.At = ago(46 * time.Second) })), "a list that is old shows nothing")
	require.Equal(t, 1, inUse(list(func(r *Runner) { r.At = ago(20 * time.Second) })), "what it shows may have ended, as the book says")
	require.Equal(t, 1, inUse(list(func(r *Runner) { r.Running, r.BySystem = 1, map[string]int{"s-1": 1} })))
	require.Equal(t, 1, inUse(list(func(r *Runner) { r.BySystem = map[string]int{"s-2": 2} })), "it is another's")
	elsewhere := func(f *Facts) {
		f.Routed = append(f.Routed, f.Routed[0])
		f.Routed[1].Machine.ID, f.Routed[1].Machine.InstanceID = "s-2", "i-2"
	}
	require.Equal(t, 1, inUse(elsewhere), "s-2 has the job that s-1 asked for: they tell of as many as GitLab")
}
