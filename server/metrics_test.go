package server_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/server"
	"github.com/spillway-ci/spillway/store"
)

func testPool(name string) spillway.Pool {
	return spillway.Pool{Name: name, Capability: spillway.Capability{Tags: []string{name}}, CapacityPerInstance: 1, Provider: "mine", Group: name}
}

// series returns every series of spillway's own metrics, name{label="value"} → value.
func series(t *testing.T, m *server.Metrics) map[string]float64 {
	t.Helper()
	families, err := m.Registry().Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") {
			continue
		}
		for _, x := range f.GetMetric() {
			var labels []string
			for _, l := range x.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			all[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = value(f.GetType(), x)
		}
	}
	return all
}

func value(kind dto.MetricType, x *dto.Metric) float64 {
	switch kind {
	case dto.MetricType_COUNTER:
		return x.GetCounter().GetValue()
	case dto.MetricType_HISTOGRAM:
		return float64(x.GetHistogram().GetSampleCount())
	default:
		return x.GetGauge().GetValue()
	}
}

// Field case C46: what goes through the fleet must not become series.
func TestSeriesDoNotGrowWithJobs(t *testing.T) {
	m := server.NewMetrics("test")
	m.AddProvider("mine")
	m.AddPool(testPool("linux"))
	fleet := func(from, to int) {
		for i := from; i < to; i++ {
			m.JobAssigned("linux", time.Duration(i)*time.Millisecond)
			m.JobFinished(spillway.Failed, spillway.ScriptFailure)
			m.JobFinished(spillway.JobState(fmt.Sprint("state", i)), spillway.FailureReason(fmt.Sprint("because", i)))
			m.Decided("linux", policy.Out, policy.ReasonDemand)
			m.Decided("linux", policy.Direction(fmt.Sprint(i)), policy.Reason("x\xff"+fmt.Sprint(i)))
			m.Decided(fmt.Sprint("unknown", i), policy.Out, policy.ReasonDemand)
			m.RunnersConnected(fmt.Sprint("unknown", i), 1)
			m.ProviderCalled("mine", fmt.Sprint("op", i), errors.New(fmt.Sprint("instance i-", i)), time.Second)
			m.ProviderCalled(fmt.Sprint("p", i), "status", nil, time.Second)
			m.PluginState(fmt.Sprint("p", i), true)
			m.StoreFailed(fmt.Errorf("job %d: %w", i, store.ErrUnknown))
			m.DemandObserved(server.DemandView{Signals: signals(min(i+1, 500))})
		}
	}
	fleet(0, 150)
	before := series(t, m)
	fleet(150, 10_000)
	after := series(t, m)
	require.Len(t, after, len(before))
	for name := range after {
		require.Contains(t, before, name)
		require.NotContains(t, name, "i-")
	}
}

func signals(n int) []spillway.Signal {
	var all []spillway.Signal
	for i := range n {
		var fp spillway.Fingerprint
		binary.BigEndian.PutUint32(fp[:], uint32(i+1))
		all = append(all, spillway.NewSignal(fp, 1000-i, 2, time.Now()))
	}
	return all
}

func TestSignalsAreCappedAndTheRestSummedUp(t *testing.T) {
	m := server.NewMetrics("test")
	m.DemandObserved(server.DemandView{
		Signals: signals(server.MaxFingerprints),
		Classes: []server.ClassDemand{{Unmatched: 2, Overflow: 3}, {Unmatched: 1}},
	})
	s := series(t, m)
	require.Equal(t, 1000.0, s[`spillway_demand_jobs{fingerprint="000000010000"}`])
	require.Equal(t, 500.0, s[`spillway_demand_per_runner_ratio{fingerprint="000000010000"}`])
	require.Equal(t, 0.0, s[`spillway_demand_jobs{fingerprint="other"}`])
	require.Equal(t, 3.0, s[`spillway_unmatched_jobs{}`])
	require.Equal(t, 3.0, s[`spillway_overflow_jobs{}`])

	m.DemandObserved(server.DemandView{Signals: signals(server.MaxFingerprints + 2)})
	s = series(t, m)
	require.Equal(t, float64(900+899), s[`spillway_demand_jobs{fingerprint="other"}`])
	require.Equal(t, 4.0, s[`spillway_demand_runners{fingerprint="other"}`])

	m.DemandObserved(server.DemandView{})
	s = series(t, m)
	require.NotContains(t, s, `spillway_demand_jobs{fingerprint="000000010000"}`)
	require.Contains(t, s, `spillway_demand_jobs{fingerprint="other"}`)
}

func TestPoolSeriesExistAtZeroAndGoWithThePool(t *testing.T) {
	m := server.NewMetrics("test")
	empty := series(t, m)
	m.AddPool(testPool("a"))
	m.AddPool(testPool("b"))
	s := series(t, m)
	for _, name := range []string{
		`spillway_decisions_total{direction="out",pool="a",reason="demand"}`,
		`spillway_pool_pending_jobs{pool="a"}`, `spillway_job_wait_seconds{pool="b"}`,
		`gitlab_runner_pool_idle_count{pool_name="a"}`, `spillway_runners_connected{pool="a"}`,
		`spillway_jobs_finished_total{reason="script_failure",state="failed"}`,
	} {
		require.Contains(t, s, name)
		require.Zero(t, s[name], name)
	}

	require.NotContains(t, s, `spillway_last_successful_reconcile_timestamp_seconds{pool="a"}`, "0 would be a time")

	at := time.UnixMilli(1_700_000_000_500)
	m.PoolObserved(server.PoolStatus{
		Pool: testPool("a"), Min: 1, Max: 9, Pending: 2, Running: 3, Desired: 4, InService: 5, Idle: 6, Booting: 7,
		Draining: 8, Lost: 10, Hold: policy.ReasonHoldStale, LastSuccess: at,
	})
	m.PoolObserved(server.PoolStatus{Pool: testPool("never-added"), Pending: 2})
	m.RunnersConnected("a", 11)
	m.Decided("a", policy.In, policy.ReasonIdle)
	m.JobAssigned("a", time.Second)
	s = series(t, m)
	for name, want := range map[string]float64{
		"min_instances": 1, "max_instances": 9, "pending_jobs": 2, "running_jobs": 3, "desired_instances": 4,
		"in_service_instances": 5, "idle_instances": 6, "booting_instances": 7, "draining_instances": 8, "lost_instances": 10, "held_bool": 1,
	} {
		require.Equal(t, want, s[`spillway_pool_`+name+`{pool="a"}`], name)
	}
	require.Equal(t, 6.0, s[`gitlab_runner_pool_idle_count{pool_name="a"}`])
	require.Equal(t, 11.0, s[`spillway_runners_connected{pool="a"}`])
	require.Equal(t, 1_700_000_000.5, s[`spillway_last_successful_reconcile_timestamp_seconds{pool="a"}`])
	require.Equal(t, 1.0, s[`spillway_decisions_total{direction="in",pool="a",reason="idle"}`])
	require.Equal(t, 1.0, s[`spillway_job_wait_seconds{pool="a"}`])
	require.Equal(t, 1.0, s[fmt.Sprintf(`spillway_pool_info{fingerprint=%q,pool="a",provider="mine"}`, testPool("a").Capability.Fingerprint().Short())])

	m.PoolObserved(server.PoolStatus{Pool: testPool("a")})
	require.Equal(t, 1_700_000_000.5, series(t, m)[`spillway_last_successful_reconcile_timestamp_seconds{pool="a"}`], "a failed look keeps the last success")
	m.Reconciled("a", at.Add(time.Second))
	require.Equal(t, 1_700_000_001.5, series(t, m)[`spillway_last_successful_reconcile_timestamp_seconds{pool="a"}`])

	m.RemovePool("a")
	m.PoolObserved(server.PoolStatus{Pool: testPool("a")})
	m.Decided("a", policy.In, policy.ReasonIdle)
	m.JobAssigned("a", time.Second)
	for name := range series(t, m) {
		require.NotContains(t, name, `="a"`)
	}
	m.RemovePool("b")
	require.Equal(t, empty, series(t, m))
}

func TestProviderSeries(t *testing.T) {
	m := server.NewMetrics("test")
	empty := series(t, m)
	m.AddProvider("mine")
	m.ProviderCalled("mine", "set_desired", pluginsdk.Errorf(pluginsdk.KindThrottled, "slow down"), time.Second)
	m.ProviderCalled("mine", "set_desired", nil, time.Second)
	m.PluginState("mine", true)
	m.PluginRestarted("mine")
	s := series(t, m)
	require.Equal(t, 1.0, s[`spillway_provider_calls_total{code="throttled",op="set_desired",provider="mine"}`])
	require.Equal(t, 1.0, s[`spillway_provider_calls_total{code="ok",op="set_desired",provider="mine"}`])
	require.Equal(t, 0.0, s[`spillway_provider_calls_total{code="quota",op="remove",provider="mine"}`])
	require.Equal(t, 2.0, s[`spillway_provider_call_seconds{op="set_desired",provider="mine"}`])
	require.Equal(t, 1.0, s[`spillway_plugin_up_bool{provider="mine"}`])
	require.Equal(t, 1.0, s[`spillway_plugin_restarts_total{provider="mine"}`])
	m.PluginState("mine", false)
	require.Zero(t, series(t, m)[`spillway_plugin_up_bool{provider="mine"}`])

	m.RemoveProvider("mine")
	m.ProviderCalled("mine", "status", nil, time.Second)
	m.PluginRestarted("mine")
	require.Equal(t, empty, series(t, m))
}

// A reason that the policy has and the metrics do not would be counted as other.
func TestEveryReasonHasItsSeries(t *testing.T) {
	m := server.NewMetrics("test")
	m.AddPool(testPool("a"))
	s := series(t, m)
	for _, reason := range constantsOf(t, "../scaler/policy/types.go", "Reason") {
		require.True(t, slices.ContainsFunc(constantsOf(t, "../scaler/policy/types.go", "Direction"), func(direction string) bool {
			_, has := s[decisions(direction, reason)]
			return has
		}), reason)
	}
	for _, kind := range constantsOf(t, "../plugin-sdk/errors.go", "Kind") {
		m.AddProvider("mine")
		require.Contains(t, series(t, m), fmt.Sprintf(`spillway_provider_calls_total{code=%q,op="status",provider="mine"}`, kind))
	}
	for _, reason := range constantsOf(t, "../job.go", "FailureReason") {
		m.JobFinished(spillway.Failed, spillway.FailureReason(reason))
		m.JobFinished(spillway.Canceled, spillway.FailureReason(reason))
	}
	require.Contains(t, strings.Join(keys(series(t, m)), "\n"), `spillway_jobs_finished_total{reason="job_canceled",state="canceled"}`)
}

func decisions(direction, reason string) string {
	return fmt.Sprintf(`spillway_decisions_total{direction=%q,pool="a",reason=%q}`, direction, reason)
}

func TestDecisionsWithoutASeriesAreOthers(t *testing.T) {
	m := server.NewMetrics("test")
	m.AddPool(testPool("a"))
	m.Decided("a", policy.Out, policy.ReasonIdle)
	m.Decided("a", policy.In, "a reason that nobody knows")
	m.Decided("a", "sideways", policy.ReasonDemand)
	m.Decided("a", policy.None, policy.ReasonDemand)
	s := series(t, m)
	require.Equal(t, 1.0, s[decisions("out", "other")])
	require.Equal(t, 1.0, s[decisions("in", "other")])
	require.Equal(t, 1.0, s[decisions("none", "other")])
	require.Equal(t, 1.0, s[decisions("none", "demand")])
	require.NotContains(t, s, decisions("out", "idle"))
	m.AddPool(testPool("a")) // once more, for a reload
	require.Equal(t, 1.0, series(t, m)[decisions("none", "demand")])
}

// A pair of direction and reason that the policy can decide and the metrics do not
// have would be counted as other.
func TestEveryDecisionHasItsSeries(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, s, o := drawDecision(rt)
		now := time.Unix(1_700_000_000, 0)
		m := server.NewMetrics("test")
		m.AddPool(testPool("a"))
		for range 3 {
			var d policy.Decision
			d, s = policy.Decide(p, s, o, now)
			m.Decided("a", d.Direction, d.Reason)
			now = now.Add(time.Minute)
		}
		all := series(t, m)
		for _, direction := range constantsOf(t, "../scaler/policy/types.go", "Direction") {
			require.Zero(rt, all[decisions(direction, "other")], "%+v %+v", p, o)
		}
	})
}

func drawDecision(t *rapid.T) (policy.Policy, policy.State, policy.Observation) {
	few := func(name string) int { return rapid.IntRange(0, 6).Draw(t, name) }
	maybe := func(name string) time.Duration {
		return time.Duration(rapid.IntRange(0, 2).Draw(t, name)) * time.Minute
	}
	p := policy.Policy{
		Need: rapid.SampledFrom([]policy.Need{policy.Queue, policy.Step}).Draw(t, "need"),
		Min:  few("min"), Max: few("max"), CapacityPerInstance: 1, IdleCount: few("idle count") / 4,
		Tolerance: float64(few("tolerance")/5) / 2, MaxRemovalsPerTick: few("removals") / 4, InPercentBudget: few("budget") / 5 * 10,
		Out:  policy.Rules{Stabilization: maybe("out stabilization"), Cooldown: maybe("out cooldown"), StepLimit: few("out step") / 4},
		In:   policy.Rules{Stabilization: maybe("in stabilization"), Cooldown: maybe("in cooldown"), StepLimit: few("in step") / 4},
		Step: 1, Paused: few("paused") == 0,
	}
	o := policy.Observation{
		Running: few("running"), Attributed: few("attributed"), Unplaced: few("unplaced") / 5, Floor: few("floor"), Overflow: few("overflow"),
		Usable: few("usable"), Booting: few("booting"), Draining: few("draining") / 3, Leaving: few("leaving") / 3, Ending: few("ending") / 3,
		InUse: few("in use"), Removable: few("removable"), Unfilled: few("unfilled"), Withdrawable: few("withdrawable"),
		GroupDesired: few("desired"), GroupMin: few("group min"), GroupMax: few("group max"),
		DemandAge: policy.Freshness(few("demand age") / 5), GroupAge: policy.Freshness(few("group age") / 5),
		LaunchClamp: few("clamp") - 4,
	}
	o.NoScaleIn = rapid.SampledFrom([]policy.Reason{
		"", "", policy.ReasonHoldWarmup, policy.ReasonHoldUnready, policy.ReasonHoldStale, policy.ReasonCannotDrain, policy.ReasonGroupHalt,
	}).Draw(t, "no scale-in")
	o.NoLaunch = rapid.SampledFrom([]policy.Reason{
		"", "", policy.ReasonHoldBreaker, policy.ReasonThrottled, policy.ReasonGroupHalt,
	}).Draw(t, "no launch")
	s := policy.State{Held: few("held"), GroupSeen: rapid.Bool().Draw(t, "group seen")}
	return p, s, o
}

func keys(m map[string]float64) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	return all
}

// constantsOf reads the values of the string constants of a type from its source.
func constantsOf(t *testing.T, file, typeName string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	var values []string
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); ok && id.Name == typeName {
			v, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			values = append(values, v)
		}
		return true
	})
	require.NotEmpty(t, values)
	return values
}

func BenchmarkScrape100Pools(b *testing.B)  { benchmarkScrape(b, 100) }
func BenchmarkScrape1000Pools(b *testing.B) { benchmarkScrape(b, 1000) }

func benchmarkScrape(b *testing.B, pools int) {
	m := server.NewMetrics("test")
	for i := range pools {
		m.AddPool(testPool(fmt.Sprint("pool-", i)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Registry().Gather(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAddPool(b *testing.B) {
	m := server.NewMetrics("test")
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		m.AddPool(testPool(fmt.Sprint("pool-", i)))
		i++
	}
}
