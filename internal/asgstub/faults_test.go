package asgstub

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/stretchr/testify/require"
)

func faulty(f Faults) GroupConfig { return GroupConfig{Name: "ci", Max: 20, Faults: &f} }

func TestLaunchesFailAsActivities(t *testing.T) {
	t.Parallel()
	for code := range launchTexts {
		w := newWorld(t, Options{}, faulty(Faults{Launch: []LaunchFault{{Code: code, Window: Window{To: time.Minute}}}}))
		require.NoError(t, w.set("ci", 3), "the call is accepted")
		require.EqualValues(t, 3, *w.describe("ci").DesiredCapacity)
		require.Zero(t, w.Live("ci"))
		a := w.activities("ci")
		require.Len(t, a, 1, "one for the whole attempt")
		require.Equal(t, types.ScalingActivityStatusCodeFailed, a[0].StatusCode)
		require.True(t, strings.HasSuffix(*a[0].StatusMessage, ". Launching EC2 instance failed."), *a[0].StatusMessage)
		require.LessOrEqual(t, len(*a[0].StatusMessage), maxStatusMessage)
		require.NotContains(t, *a[0].StatusMessage, "%!")
		w.pass(DefaultRetry)
		require.Len(t, w.activities("ci"), 2, "tried again")
		w.pass(DefaultRetry)
		require.Equal(t, 3, w.Live("ci"), "the window is over")
	}
}

func TestWithdrawalCancelsWhatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, faulty(Faults{Launch: []LaunchFault{{Code: "VcpuLimitExceeded"}}}))
	require.NoError(t, w.set("ci", 4))
	require.NoError(t, w.set("ci", 0))
	before := len(w.activities("ci"))
	w.pass(time.Hour)
	require.Len(t, w.activities("ci"), before, "nobody tries any more")
	g, _ := w.Group("ci")
	require.Zero(t, g.Outstanding)
}

func TestZoneWithoutCapacity(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, faulty(Faults{Launch: []LaunchFault{{Code: "InsufficientInstanceCapacity", Ratio: 0.5}}}))
	require.NoError(t, w.set("ci", 20))
	live := w.Live("ci")
	require.Greater(t, live, 0)
	require.Less(t, live, 20)
	w.pass(time.Hour)
	require.Equal(t, 20, w.Live("ci"))
}

func TestPartialAndLateFill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, faulty(Faults{Partial: 0.6, LateFill: time.Minute}))
	require.NoError(t, w.set("ci", 10))
	require.Equal(t, 6, w.Live("ci"))
	w.pass(time.Minute)
	require.Equal(t, 10, w.Live("ci"))

	w = newWorld(t, Options{}, faulty(Faults{Partial: 0.6}))
	require.NoError(t, w.set("ci", 10))
	w.pass(24 * time.Hour)
	require.Equal(t, 6, w.Live("ci"), "the rest never comes")
}

func TestEventualConsistency(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, faulty(Faults{VisibleAfter: 5 * time.Second, DesiredStale: 2 * time.Second}))
	require.NoError(t, w.set("ci", 1))
	require.EqualValues(t, 0, *w.describe("ci").DesiredCapacity)
	require.Empty(t, w.describe("ci").Instances)
	require.Equal(t, 1, w.Live("ci"), "it bills")
	w.pass(2 * time.Second)
	require.EqualValues(t, 1, *w.describe("ci").DesiredCapacity)
	w.pass(3 * time.Second)
	require.Len(t, w.describe("ci").Instances, 1)
}

func TestNeverRegister(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, faulty(Faults{NeverRegister: NeverRegister{Every: 3}, Boot: Boot{P50: time.Minute}}))
	require.NoError(t, w.set("ci", 6))
	w.pass(time.Minute)
	silent := 0
	for _, ch := range w.changes {
		if ch.Kind == Ready && !ch.Registers {
			silent++
		}
	}
	require.Equal(t, 2, silent)
	require.Equal(t, map[string]int{InService: 6}, w.states("ci"))
}

func TestCallFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, faulty(Faults{Calls: []CallFault{
		{Code: "ScalingActivityInProgress", Operations: []string{"SetDesiredCapacity"}, Times: 1},
		{Code: "ResourceContention", Operations: []string{"SetDesiredCapacity"}, Times: 1, Applied: true},
		{Code: "AccessDenied", Operations: []string{"SetDesiredCapacity"}, Window: Window{From: time.Minute, To: 2 * time.Minute}},
		{Code: "Custom", Message: "as you like", Status: 418, Window: Window{From: time.Hour}},
	}}), GroupConfig{Name: "other", Max: 1})
	require.Equal(t, "ScalingActivityInProgress", code(w.set("ci", 1)))
	require.Equal(t, 0, w.Live("ci"))
	require.Equal(t, "ResourceContention", code(w.set("ci", 1)))
	require.Equal(t, 1, w.Live("ci"), "it was done, and its answer lost")
	require.NoError(t, w.set("ci", 2))
	w.pass(time.Minute)
	require.ErrorContains(t, w.set("ci", 3), "user/tester is not authorized to perform: autoscaling:SetDesiredCapacity")
	w.pass(time.Hour)
	require.ErrorContains(t, w.set("ci", 3), "as you like")
	require.NoError(t, w.set("other", 1), "the faults are of one group")

	var codes []string
	for _, c := range w.Calls() {
		require.Equal(t, "tester", c.Who)
		codes = append(codes, c.Code)
	}
	require.Equal(t, []string{"ScalingActivityInProgress", "ResourceContention", "", "AccessDenied", "Custom", ""}, codes)
	require.Equal(t, 6, w.CountOf("SetDesiredCapacity"))
	require.Equal(t, "3", w.Calls()[3].Arg("DesiredCapacity"))
	w.ResetCalls()
	require.Zero(t, w.CountOf("SetDesiredCapacity"))
}

func TestThrottling(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{Rate: RateLimit{Burst: 10, PerSecond: 2}}, GroupConfig{Name: "ci", Max: 20})
	for i := range 10 {
		require.NoError(t, w.set("ci", i))
	}
	err := w.set("ci", 11)
	require.Equal(t, "Throttling", code(err))
	require.ErrorContains(t, err, "Rate exceeded")
	w.pass(time.Second)
	require.NoError(t, w.set("ci", 11))
	require.NoError(t, w.set("ci", 12))
	require.Equal(t, "Throttling", code(w.set("ci", 13)))

	w = newWorld(t, Options{Faults: Faults{ThrottlePct: 50}}, GroupConfig{Name: "ci", Max: 20})
	throttled := 0
	for i := range 200 {
		if code(w.set("ci", i%2)) == "Throttling" {
			throttled++
		}
	}
	require.InDelta(t, 100, throttled, 40)
}

func TestVictims(t *testing.T) {
	t.Parallel()
	for victim, want := range map[Victim]int{BusyFirst: 2, Oldest: 0} {
		w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 5, Desired: 4, Faults: &Faults{Victim: victim}})
		ids := w.ids("ci")
		w.Busy = func(id string) bool { return id == ids[2] }
		require.NoError(t, w.set("ci", 3))
		require.Equal(t, map[string]Cause{ids[want]: ByScaleIn}, w.ended())
	}
}

func TestReplaceRaceKillsSomebodyElse(t *testing.T) {
	t.Parallel()
	race := &Faults{ReplaceRace: true, Victim: BusyFirst, Boot: Boot{P50: time.Minute}, Pending: 20 * time.Second}
	for _, protected := range []bool{false, true} {
		w := newWorld(t, Options{}, GroupConfig{Name: "ci", Min: 1, Max: 9, Desired: 5, NewInstancesProtected: protected, Faults: race})
		ids := w.ids("ci")
		w.Busy = func(id string) bool { return id == ids[3] }
		require.NoError(t, w.kill(ids[0], true))
		require.Equal(t, 5, w.Live("ci"), "a replacement is on its way")
		w.pass(time.Hour)
		require.Equal(t, 4, w.Live("ci"))
		require.EqualValues(t, 4, *w.describe("ci").DesiredCapacity)
		require.Equal(t, !protected, w.ended()[ids[3]] == Replaced, "a busy one dies unless it is protected")
	}
}

func TestAutoReplaceOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 5, Desired: 2, Faults: &Faults{AutoReplace: aws.Bool(false)}})
	require.True(t, w.SelfTerminate(w.ids("ci")[0]))
	require.EqualValues(t, 1, *w.describe("ci").DesiredCapacity)
	require.Equal(t, 1, w.Live("ci"))
}

func TestAZRebalanceLaunchesFirst(t *testing.T) {
	t.Parallel()
	boot := Faults{AZRebalance: true, Boot: Boot{P50: time.Minute}, Pending: 10 * time.Second}
	for _, suspended := range [][]string{nil, {"AZRebalance"}} {
		w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 6, Desired: 6, SuspendedProcesses: suspended, Faults: &boot})
		for _, in := range w.Existing("ci") {
			if in.Zone == "us-east-1a" {
				require.NoError(t, w.kill(in.ID, true))
			}
		}
		w.pass(balanceAfter)
		if suspended != nil {
			w.pass(time.Hour)
			require.Len(t, w.ended(), 3)
			continue
		}
		require.Equal(t, 4, w.Live("ci"), "one more than desired for a while")
		w.pass(time.Hour)
		require.Equal(t, 3, w.Live("ci"))
		require.Len(t, w.ended(), 4)
	}
}

func TestPageSize(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{Faults: Faults{PageSize: 2}}, GroupConfig{Name: "a"}, GroupConfig{Name: "b"}, GroupConfig{Name: "c"})
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(w.api, &autoscaling.DescribeAutoScalingGroupsInput{MaxRecords: aws.Int32(100)})
	var sizes []int
	for pages.HasMorePages() {
		out, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		sizes = append(sizes, len(out.AutoScalingGroups))
	}
	require.Equal(t, []int{2, 1}, sizes)
}

func TestHang(t *testing.T) {
	t.Parallel()
	hang := Faults{Calls: []CallFault{{Hang: true, Operations: []string{"SetDesiredCapacity"}}}}
	w := newWorld(t, Options{Faults: hang}, GroupConfig{Name: "ci", Max: 1})
	require.ErrorContains(t, w.set("ci", 1), "504", "without a socket nothing waits")

	c := New(Options{Faults: hang})
	c.AddGroup(GroupConfig{Name: "ci", Max: 1})
	srv := httptest.NewServer(c)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := newClient(srv.Client(), srv.URL).SetDesiredCapacity(ctx, &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: aws.String("ci"), DesiredCapacity: aws.Int32(1)})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestFaultsAreChecked(t *testing.T) {
	t.Parallel()
	bad := Faults{
		Boot: Boot{P50: time.Minute, P95: time.Second}, Pending: -1, ThrottlePct: 101, Partial: 2, PageSize: -1, Victim: "youngest",
		NeverRegister: NeverRegister{Every: -1},
		Launch:        []LaunchFault{{Code: "Whatever"}, {Code: "Unsupported", Ratio: 2}, {Code: "Unsupported", Window: Window{From: 2, To: 1}}},
		Calls:         []CallFault{{}, {Code: "X", Hang: true}, {Code: "X", Operations: []string{"Reboot"}}, {Code: "X", Status: 200, Times: -1}},
	}
	require.Len(t, bad.mistakes(), 15, "%v", bad.Validate())
	require.NoError(t, Faults{}.Validate())
	require.Panics(t, func() { New(Options{Faults: bad}) })
	require.Panics(t, func() { New(Options{}).AddGroup(GroupConfig{}) })
}
