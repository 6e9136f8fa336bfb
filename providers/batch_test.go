package providers

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// cloud is an in-process provider that notes each Status call.
type cloud struct {
	pluginsdk.Provider
	status func(ctx context.Context, groups []string) ([]pluginsdk.GroupStatus, error)
	mu     struct {
		sync.Mutex
		calls [][]string
	}
}

func (c *cloud) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{Name: "cloud", Version: "1", ConfigSchema: "{}"}, nil
}
func (c *cloud) Configure(context.Context, []byte) error { return nil }
func (c *cloud) Close(context.Context) error             { return nil }

func (c *cloud) Status(ctx context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
	c.mu.Lock()
	c.mu.calls = append(c.mu.calls, groups)
	c.mu.Unlock()
	if c.status != nil {
		return c.status(ctx, groups)
	}
	answers := make([]pluginsdk.GroupStatus, len(groups))
	for i, g := range groups {
		answers[i] = pluginsdk.GroupStatus{Group: g, Max: 10}
		if g == "missing" {
			answers[i] = pluginsdk.GroupStatus{Group: g, Err: kindErr(pluginsdk.KindNotFound)}
		}
	}
	return answers, nil
}

func inProcess(t *testing.T, c *cloud) *Plugin {
	t.Helper()
	p, err := InProcess(t.Context(), Spec{Name: "cloud"}, c, Options{})
	require.NoError(t, err)
	return p
}

func groupsOf(p *Plugin, names ...string) []*Group {
	var groups []*Group
	for _, n := range names {
		groups = append(groups, p.Group("pool-"+n, n))
	}
	return groups
}

// TestStatusesShareACall: the thousand pools of one account ask in one call.
func TestStatusesShareACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{}
		var names []string
		for i := range 999 {
			names = append(names, "g"+itoa(i))
		}
		groups := groupsOf(inProcess(t, c), append(names, "silent")...)
		var wait sync.WaitGroup
		for _, g := range groups[:999] {
			wait.Go(func() {
				s, err := g.Status(context.Background())
				require.NoError(t, err)
				require.Equal(t, g.Calls.(*observation).who.Group, s.Group)
			})
		}
		began := time.Now()
		wait.Wait()
		require.Equal(t, batchWindow, time.Since(began), "one group hasn't asked")
		require.Len(t, c.mu.calls, 1)
		slices.Sort(names)
		require.Equal(t, names, c.mu.calls[0])
	})
}

// TestABatchWaitsWhileOthersCome: pools that tick together do not ask at the same
// moment, and yet they share a call.
func TestABatchWaitsWhileOthersCome(t *testing.T) {
	const apart = batchWindow - time.Microsecond
	for name, c := range map[string]struct{ groups, calls int }{
		"as long as they come":          {groups: int(batchPatience / apart), calls: 1},
		"and no longer than that":       {groups: int(batchPatience/apart) + 2, calls: 2},
		"and it has the rest wait anew": {groups: 2*int(batchPatience/apart) + 1, calls: 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			cloud := &cloud{}
			var names []string
			for i := range c.groups {
				names = append(names, "g"+itoa(i))
			}
			var wait sync.WaitGroup
			for i, g := range groupsOf(inProcess(t, cloud), append(names, "silent")...)[:c.groups] {
				wait.Go(func() {
					time.Sleep(time.Duration(i) * apart)
					began := time.Now()
					_, err := g.Status(context.Background())
					require.NoError(t, err)
					require.LessOrEqual(t, time.Since(began), batchPatience, name)
				})
			}
			wait.Wait()
			require.Len(t, cloud.mu.calls, c.calls, name)
		})
	}
}

func TestALoneGroupDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{}
		g := inProcess(t, c).Group("pool", "g")
		began := time.Now()
		for range 3 {
			_, err := g.Status(context.Background())
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(began))
		require.Len(t, c.mu.calls, 3)
	})
}

func TestABatchKeepsTheContractsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{}
		p := inProcess(t, c)
		var wait sync.WaitGroup
		for i := range 2*pluginsdk.MaxGroupsPerCall + 1 {
			p.batch.expect(itoa(i))
		}
		for i := range 2*pluginsdk.MaxGroupsPerCall + 1 {
			wait.Go(func() {
				_, err := p.batch.status(context.Background(), itoa(i))
				require.NoError(t, err)
			})
		}
		wait.Wait()
		total := 0
		for _, call := range c.mu.calls {
			require.LessOrEqual(t, len(call), pluginsdk.MaxGroupsPerCall)
			total += len(call)
		}
		require.Len(t, c.mu.calls, 3)
		require.Equal(t, 2*pluginsdk.MaxGroupsPerCall+1, total)
	})
}

// TestAGroupThatCannotBeReadHarmsNoOther.
func TestAGroupThatCannotBeReadHarmsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := groupsOf(inProcess(t, &cloud{}), "a", "missing")
		var wait sync.WaitGroup
		wait.Go(func() {
			_, err := groups[0].Status(context.Background())
			require.NoError(t, err)
		})
		wait.Go(func() {
			_, err := groups[1].Status(context.Background())
			require.ErrorIs(t, err, pluginsdk.ErrNotFound)
		})
		wait.Wait()
	})
}

func TestOneCallerLeavesTheOthersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{}
		ended := error(nil)
		c.status = func(ctx context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
			select {
			case <-time.After(time.Second):
				return []pluginsdk.GroupStatus{{Group: "a", Max: 1}, {Group: "b", Max: 1}}, nil
			case <-ctx.Done():
				ended = context.Cause(ctx)
				return nil, ctx.Err()
			}
		}
		groups := groupsOf(inProcess(t, c), "a", "b")
		hasty, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		var wait sync.WaitGroup
		wait.Go(func() {
			_, err := groups[0].Status(hasty)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		wait.Go(func() {
			_, err := groups[1].Status(context.Background())
			require.NoError(t, err)
		})
		wait.Wait()
		require.NoError(t, ended)

		hasty, cancel = context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := groups[0].Status(hasty)
		require.Error(t, err)
		synctest.Wait()
		require.Error(t, ended, "nobody waits: the call is ended")
	})
}

func TestAnswersToOtherQuestionsAreRefused(t *testing.T) {
	for name, answer := range map[string][]pluginsdk.GroupStatus{
		"none":        {},
		"too many":    {{Group: "a"}, {Group: "b"}, {Group: "c"}},
		"other order": {{Group: "b"}, {Group: "a"}},
		"twice":       {{Group: "a"}, {Group: "a"}},
		"foreign":     {{Group: "a"}, {Group: "z"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &cloud{}
			c.status = func(context.Context, []string) ([]pluginsdk.GroupStatus, error) { return answer, nil }
			var wait sync.WaitGroup
			for _, g := range groupsOf(inProcess(t, c), "a", "b") {
				wait.Go(func() {
					_, err := g.Status(context.Background())
					require.ErrorIs(t, err, pluginsdk.ErrInvalid, name)
				})
			}
			wait.Wait()
		})
	}
}
