package suite

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// TestServedFleet runs the whole: it builds and starts the control plane, has it
// scale out a few pools, and looks at it while nothing is to be done.
func TestServedFleet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f := reactShape(3)
	f.tick = 2 * time.Second
	f.group.Min, f.group.Desired, f.policy["min"], f.tokens = 1, 1, 1, true
	s, err := serveFleet(ctx, t.TempDir(), f)
	if errors.Is(err, errSkipped) {
		t.Skip("SKIPPED:", err)
	}
	needRedis(t, err)
	defer func() { require.NoError(t, s.stop()) }()

	instances := make([]string, f.pools)
	for i := range instances {
		instances[i] = s.cloud.Existing(groupName(i))[0].ID
	}
	machines, err := startSteadyMachines(ctx, s.plane.log.at.Runners, instances)
	require.NoError(t, err)
	defer machines.Stop()
	_, _, err = s.push([]int{0, 1}) // for the machines that are there
	require.NoError(t, err)
	quiet, err := s.watch(ctx, f.tick, 1)
	require.NoError(t, err)
	require.Zero(t, writes(quiet.calls))
	require.NotEmpty(t, quiet.refreshes)
	for _, r := range quiet.refreshes {
		require.GreaterOrEqual(t, r.groups, f.pools)
	}

	took, err := s.burstOnce(ctx, []int{0, 1}, 2) // for one more each
	require.NoError(t, err)
	require.Positive(t, took.last)
	below, beyond := s.cloud.against(2, 2)
	require.Equal(t, []int{0, 0}, []int{below, beyond})
	below, beyond = s.cloud.against(f.pools, 1)
	require.Equal(t, []int{0, 2}, []int{below, beyond})
	require.Equal(t, 2, writes(s.cloud.Calls()))
}

func describeAt(at time.Time, code string, names ...int) asgstub.Call {
	args := url.Values{}
	for i, n := range names {
		args.Set(fmt.Sprintf("AutoScalingGroupNames.member.%d", i+1), groupName(n))
	}
	return asgstub.Call{At: at, Operation: opDescribe, Code: code, Args: args}
}

func TestRefreshesAreToldApart(t *testing.T) {
	t0 := time.Now()
	require.Equal(t, []refresh{{describes: 2, groups: 3}, {describes: 1, groups: 1}}, refreshesOf([]asgstub.Call{
		describeAt(t0, "", 0, 1), describeAt(t0.Add(time.Second), "", 2),
		{At: t0, Operation: opSetDesired},
		describeAt(t0.Add(time.Second), "Throttling", 3), describeAt(t0.Add(reactTick), "", 0),
	}, reactTick))
	require.Empty(t, refreshesOf(nil, reactTick))
}

// TestFlawsOfASteadyFleetAreNoticed: each counter can be wrong.
func TestFlawsOfASteadyFleetAreNoticed(t *testing.T) {
	const pools = 150
	good := refresh{describes: 2, groups: pools}
	for name, c := range map[string]struct {
		quietTime

		flaw map[string]measure.Verdict
	}{
		"none":          {quietTime{refreshes: []refresh{good, good}}, map[string]measure.Verdict{}},
		"a call more":   {quietTime{refreshes: []refresh{{3, pools}, {3, pools}}}, map[string]measure.Verdict{"Describes a refresh": measure.Missed}},
		"one left out":  {quietTime{refreshes: []refresh{{2, pools - 1}}}, map[string]measure.Verdict{"groups left out of a refresh": measure.Missed}},
		"it was scaled": {quietTime{refreshes: []refresh{good}, calls: []asgstub.Call{{Operation: opSetDesired}}}, map[string]measure.Verdict{"writes to the cloud": measure.Wrong}},
	} {
		b := &bench{table: &measure.Table{}}
		c.rows(b, pools)
		flaws := map[string]measure.Verdict{}
		for _, r := range b.table.Rows {
			if r.Verdict == measure.Wrong || r.Verdict == measure.Missed {
				flaws[r.Subject] = r.Verdict
			}
		}
		require.Equal(t, c.flaw, flaws, name)
	}
}

func TestThrottledAndWrites(t *testing.T) {
	calls := []asgstub.Call{
		{Operation: opDescribe},
		{Operation: opDescribe, Code: "Throttling"},
		{Operation: opSetDesired, Code: "Throttling"},
		{Operation: opSetDesired},
		{Operation: opSetDesired, Code: "ValidationError"},
	}
	require.Equal(t, 2, throttled(calls))
	require.Equal(t, 3, writes(calls))
	require.Len(t, good(calls, opSetDesired), 1)
}

func TestTheLogOfAControlPlane(t *testing.T) {
	l := followLog(strings.NewReader(`a word of somebody else's
{"level":"INFO","msg":"serving","api":"127.0.0.1:1","runners":"127.0.0.1:2"}
{"level":"WARN","msg":"trouble","doing":"asking","error":"no"}
{"level":"ERROR","msg":"broke"}
{"level":"WARN","msg":"trouble","doing":"asking","error":"no"}
{"level":"INFO","msg":"stopped"}
`))
	<-l.serving
	<-l.ended
	require.Equal(t, "127.0.0.1:1", l.at.API)
	require.Equal(t, "127.0.0.1:2", l.at.Runners)
	require.Contains(t, l.last, "stopped")
	b := &bench{table: &measure.Table{}}
	l.complain(b)
	require.Len(t, b.table.Notes, 2)
	require.Contains(t, b.table.Notes[0], "2 times: trouble asking: no")
}
