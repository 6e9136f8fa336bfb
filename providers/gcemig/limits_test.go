package gcemig

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/iterator"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// numbers is an iterator of n numbers.
func numbers(n int) func() (int, error) {
	i := 0
	return func() (int, error) {
		if i == n {
			return 0, iterator.Done
		}
		i++
		return i, nil
	}
}

func TestX07_AListThatIsTooLongIsAnError(t *testing.T) {
	c := &clients{}
	list, err := all(c, 3, numbers(3))
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3}, list)
	list, err = all(c, 3, numbers(4))
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	require.Nil(t, list)
	list, more, err := upTo(c, 3, numbers(4))
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, []int{1, 2, 3}, list)
}

func TestFilterFor(t *testing.T) {
	require.Equal(t, `name eq "(ci-linux-|web-).*"`, filterFor([]string{"web-1", "ci-linux-ab12", "ci-linux-cd34"}))
	require.Empty(t, filterFor([]string{"noprefix", "web-1"}), "a filter that leaves one out is none")
	names := []string{}
	for i := range maxPrefixes {
		names = append(names, fmt.Sprintf("p%d-x", i))
	}
	require.NotEmpty(t, filterFor(names))
	require.Empty(t, filterFor(append(names, "one-more")))
}

func TestFailuresAreBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var list []*computepb.InstanceManagedByIgmError
	add := func(at time.Time, action, code string) {
		list = append(list, &computepb.InstanceManagedByIgmError{
			Timestamp: new(at.Format(time.RFC3339)),
			Error:     &computepb.InstanceManagedByIgmErrorManagedInstanceError{Code: &code, Message: new(strings.Repeat("x", maxMessageBytes))},
			InstanceActionDetails: &computepb.InstanceManagedByIgmErrorInstanceActionDetails{
				Action: &action, Instance: new("https://host/compute/v1/projects/p/zones/z/instances/i"),
			},
		})
	}
	for i := range maxFailures + 1 {
		add(now.Add(-time.Duration(i)*time.Second), "CREATING", fmt.Sprintf("CODE_%d", i))
	}
	add(now, "DELETING", "NO_LAUNCH")
	add(now.Add(-failureAge), "CREATING", "OLD")
	g := &group{}
	g.memory.failures = failuresOf(list)
	got := g.recentFailures(now)
	require.Len(t, got, maxFailures)
	require.Equal(t, now, got[0].At.UTC(), "the newest first")
	for _, f := range got {
		require.NotContains(t, f.ID, "NO_LAUNCH")
		require.NotContains(t, f.ID, "OLD")
		require.LessOrEqual(t, len(f.Message), maxMessageBytes+len("…"))
		require.Equal(t, pluginsdk.KindTransient, f.Kind)
	}
}
