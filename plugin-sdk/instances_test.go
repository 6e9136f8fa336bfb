package pluginsdk_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// rack is a cloud of instances: its list lags, and it can be full.
type rack struct {
	lag  time.Duration
	most int
	full int // Create fails when so many exist; 0 = never
	mu   struct {
		sync.Mutex
		next int
		at   map[string]time.Time
	}
	kept string
}

func (r *rack) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{Name: "rack", Version: "1.0.0", ConfigSchema: "{}"}, nil
}
func (r *rack) Configure(context.Context, []byte) error { return nil }
func (r *rack) Close(context.Context) error             { return nil }

func (r *rack) List(_ context.Context, group string) (all []pluginsdk.Instance, most int, err error) {
	if group != "g" {
		return nil, 0, pluginsdk.Errorf(pluginsdk.KindNotFound, "no group %s", group)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, at := range r.mu.at {
		if time.Since(at) >= r.lag {
			all = append(all, pluginsdk.Instance{ID: id, State: pluginsdk.StateRunning, Kept: id == r.kept})
		}
	}
	slices.SortFunc(all, func(a, b pluginsdk.Instance) int { return len(a.ID) - len(b.ID) })
	return all, r.most, nil
}

func (r *rack) Create(context.Context, string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full > 0 && len(r.mu.at) >= r.full {
		return "", pluginsdk.Errorf(pluginsdk.KindCapacity, "the rack is full")
	}
	r.mu.next++
	id := fmt.Sprintf("vm%d", r.mu.next)
	if r.mu.at == nil {
		r.mu.at = map[string]time.Time{}
	}
	r.mu.at[id] = time.Now()
	return id, nil
}

func (r *rack) Delete(_ context.Context, _, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.mu.at[id]; !ok {
		return pluginsdk.ErrNotFound
	}
	delete(r.mu.at, id)
	return nil
}

func desiredOf(t *testing.T, p pluginsdk.Provider) int {
	t.Helper()
	all, err := p.Status(t.Context(), []string{"g"})
	require.NoError(t, err)
	require.NoError(t, all[0].Err)
	return all[0].Desired
}

// A cloud whose list lags must not be asked for the same instance twice.
func TestInstancesThatAreNotListedYetCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pluginsdk.FromInstances(&rack{lag: time.Minute, most: 9})
		n, err := p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "g", Target: 3})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, 3, desiredOf(t, p))
		all, err := p.ListInstances(t.Context(), "g")
		require.NoError(t, err)
		require.Equal(t, pluginsdk.StateCreating, all[0].State)
		_, err = p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "g", Target: 4})
		require.ErrorIs(t, err, pluginsdk.ErrConflict)
		time.Sleep(time.Minute)
		all, err = p.ListInstances(t.Context(), "g")
		require.NoError(t, err)
		require.Len(t, all, 3)
		require.Equal(t, pluginsdk.StateRunning, all[0].State)

		results, err := p.Remove(t.Context(), "g", []string{all[0].ID, all[0].ID, "nobody"}, "t")
		require.NoError(t, err)
		require.Equal(t, []pluginsdk.RemoveOutcome{pluginsdk.Removed, pluginsdk.AlreadyGone, pluginsdk.AlreadyGone},
			[]pluginsdk.RemoveOutcome{results[0].Outcome, results[1].Outcome, results[2].Outcome})
		require.Equal(t, 2, desiredOf(t, p))
	})
}

// What was created and never shows is not counted for ever.
func TestAnInstanceThatIsNeverListedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pluginsdk.FromInstances(&rack{lag: time.Hour, most: 9})
		_, err := p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "g", Target: 1})
		require.NoError(t, err)
		time.Sleep(5*time.Minute + time.Second)
		require.Zero(t, desiredOf(t, p))
	})
}

func TestInstancesOfACloudThatIsFull(t *testing.T) {
	p := pluginsdk.FromInstances(&rack{most: 9, full: 2})
	_, err := p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "g", Target: 5})
	require.ErrorIs(t, err, pluginsdk.ErrCapacity)
	require.Equal(t, 2, desiredOf(t, p), "what was made before counts")
	_, err = p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "g", Target: 10, Expected: 2})
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	_, err = p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "g", Target: 1, Expected: 2})
	require.ErrorIs(t, err, pluginsdk.ErrInvalid, "nobody is named")
}

func TestX21_AKeptInstanceIsNotRemoved(t *testing.T) {
	p := pluginsdk.FromInstances(&rack{most: 9, kept: "vm1"})
	_, err := p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "g", Target: 1})
	require.NoError(t, err)
	results, err := p.Remove(t.Context(), "g", []string{"vm1"}, "t")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.NotRemoved, results[0].Outcome)
	require.ErrorIs(t, results[0].Err, pluginsdk.ErrInvalid)
	require.Equal(t, 1, desiredOf(t, p))
}

// album is a cloud whose list is its own memory, with room to spare.
type album struct {
	rack
	photos []pluginsdk.Instance
}

func (a *album) List(context.Context, string) ([]pluginsdk.Instance, int, error) {
	return a.photos, 10, nil
}

func (a *album) Delete(context.Context, string, string) error { return nil }

// What an author's List returns stays the author's.
func TestInstancesThatAreListedAreNotChanged(t *testing.T) {
	a := &album{photos: append(make([]pluginsdk.Instance, 0, 10), pluginsdk.Instance{ID: "a", State: pluginsdk.StateRunning})}
	p := pluginsdk.FromInstances(a)
	_, err := p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: "g", Target: 2, Expected: 1})
	require.NoError(t, err)
	results, err := p.Remove(t.Context(), "g", []string{"a"}, "")
	require.NoError(t, err)
	require.Equal(t, pluginsdk.Removed, results[0].Outcome)
	require.Equal(t, pluginsdk.StateRunning, a.photos[0].State)
	require.Empty(t, a.photos[:2][1].ID)
}
