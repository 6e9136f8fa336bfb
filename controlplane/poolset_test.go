package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
)

func TestAPoolSetJoinsItsParts(t *testing.T) {
	var told [][]spillway.Pool
	s := newPoolSet(func(pools []spillway.Pool) { told = append(told, pools) })
	tagged := func(name, tag string, priority int) spillway.Pool {
		return spillway.Pool{Name: name, Capability: spillway.Capability{Tags: []string{tag}}, Priority: priority, CapacityPerInstance: 1}
	}
	priorities := func() map[string]int {
		got := map[string]int{}
		for _, p := range s.all() {
			got[p.Name] = p.Priority
		}
		return got
	}
	require.NoError(t, s.replace(configPart, []spillway.Pool{tagged("a", "x", 0), tagged("b", "x", 5)}))
	require.NoError(t, s.replace(cellsPart, []spillway.Pool{tagged("far", "x", 1000)}))
	require.Equal(t, map[string]int{"a": 0, "b": 5, "far": 1000}, priorities())
	require.Equal(t, "a", s.all()[0].Name)

	require.ErrorIs(t, s.replace(coordinatorPart, []spillway.Pool{tagged("b", "y", 0)}), spillway.ErrInvalid)
	require.Len(t, told, 2, "nothing has changed")

	x := spillway.Capability{Tags: []string{"x"}}.Fingerprint()
	s.pin(map[string]pinned{"a": {x, 7}, "b": {spillway.Capability{Tags: []string{"other"}}.Fingerprint(), 7}})
	require.Equal(t, map[string]int{"a": 7, "b": 5, "far": 1000}, priorities(), "a pin for another capability counts for nothing")
	require.Equal(t, 7, s.inForce(tagged("a", "x", 1)).Priority)
	require.NoError(t, s.replace(configPart, []spillway.Pool{tagged("a", "z", 1)}))
	require.Equal(t, map[string]int{"a": 1, "far": 1000}, priorities())
	s.pin(nil)
	require.Len(t, told, 5)
	require.Equal(t, s.all(), told[4])
}

// A reload and what GitLab says by now change the same pools, at any time.
func TestTwoThatChangeAPartKeepWhatTheOtherHasChanged(t *testing.T) {
	s := newPoolSet(func([]spillway.Pool) {})
	require.NoError(t, s.replace(configPart, []spillway.Pool{{Name: "a"}, {Name: "b"}}))
	other := make(chan error, 1)
	err := s.update(configPart, func(pools []spillway.Pool) []spillway.Pool {
		go func() {
			other <- s.update(configPart, func(pools []spillway.Pool) []spillway.Pool {
				pools[1].Priority = 2
				return pools
			})
		}()
		select { // for a while, in which the other one is done, unless it has to wait
		case err := <-other:
			other <- err
		case <-time.After(100 * time.Millisecond):
		}
		pools[0].Priority = 1
		return pools
	})
	require.NoError(t, err)
	require.NoError(t, <-other)
	require.Equal(t, []spillway.Pool{{Name: "a", Priority: 1}, {Name: "b", Priority: 2}}, s.configured())
}
