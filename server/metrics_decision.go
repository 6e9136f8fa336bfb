package server

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/spillway-ci/spillway/scaler/policy"
)

// verdict is what decisions are counted by.
type verdict struct {
	direction policy.Direction
	reason    policy.Reason
}

// verdicts are the pairs that a decision can have: what a number is raised or
// lowered for, and what it is kept for. All other pairs would be series that are 0
// for ever, more than half of them.
var verdicts = func() []verdict {
	reasons := map[policy.Direction][]policy.Reason{
		policy.Out: {policy.ReasonDemand, policy.ReasonHeadroom, policy.ReasonMin, otherLabel},
		policy.In:  {policy.ReasonIdle, policy.ReasonMax, policy.ReasonProviderMax, policy.ReasonConflict, otherLabel},
		policy.None: {
			policy.ReasonSteady, policy.ReasonDemand, policy.ReasonMin, policy.ReasonMax, policy.ReasonProviderMax,
			policy.ReasonStepLimit, policy.ReasonTolerance, policy.ReasonStabilization, policy.ReasonCooldown, policy.ReasonIdleTime,
			policy.ReasonHoldStale, policy.ReasonHoldPartial, policy.ReasonHoldPaused, policy.ReasonHoldCooledOff,
			policy.ReasonHoldProvider, policy.ReasonHoldWarmup, policy.ReasonHoldUnready, policy.ReasonHoldBreaker,
			policy.ReasonCannotDrain, policy.ReasonRunnerGone, policy.ReasonThrottled, policy.ReasonGroupHalt, policy.ReasonFloor, policy.ReasonDrift,
			policy.ReasonConflict, otherLabel,
		},
	}
	var all []verdict
	for _, direction := range []policy.Direction{policy.Out, policy.In, policy.None} {
		for _, reason := range reasons[direction] {
			all = append(all, verdict{direction, reason})
		}
	}
	return all
}()

// verdictIndex is the place of each verdict in verdicts.
var verdictIndex = func() map[verdict]int {
	index := make(map[verdict]int, len(verdicts))
	for i, v := range verdicts {
		index[v] = i
	}
	return index
}()

// indexOf is the place of a verdict, or of what stands for those that have none.
func indexOf(v verdict) int {
	if i, known := verdictIndex[v]; known {
		return i
	}
	if i, known := verdictIndex[verdict{v.direction, otherLabel}]; known {
		return i
	}
	return verdictIndex[verdict{policy.None, otherLabel}]
}

func newDecisionsDesc() *prometheus.Desc {
	return prometheus.NewDesc("spillway_decisions_total", "Decisions of the policy that changed something or had a new reason.",
		[]string{"pool", "direction", "reason"}, nil)
}

// verdictLabels are the labels of each verdict, but for the pool: they are the same
// for all pools, and a scrape of a thousand need not make them a thousand times.
var verdictLabels = func() [][2]*dto.LabelPair {
	pairs := make([][2]*dto.LabelPair, len(verdicts))
	for i, v := range verdicts {
		pairs[i] = [2]*dto.LabelPair{label("direction", string(v.direction)), label("reason", string(v.reason))}
	}
	return pairs
}()

// collectDecisions shows a pool's decisions, by place in verdicts.
func collectDecisions(ch chan<- prometheus.Metric, desc *prometheus.Desc, pool *dto.LabelPair, counts []uint64) {
	for i, l := range verdictLabels {
		ch <- &reading{desc: desc, labels: []*dto.LabelPair{l[0], pool, l[1]}, value: float64(counts[i]), counts: true}
	}
}

// reading is a number as it was at a scrape. It is what a constant metric of the
// library is, with labels that are made once for many.
type reading struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair // by name
	value  float64
	counts bool // a counter; else a gauge
}

// Desc implements prometheus.Metric.
func (r *reading) Desc() *prometheus.Desc { return r.desc }

// Write implements prometheus.Metric.
func (r *reading) Write(out *dto.Metric) error {
	out.Label = r.labels
	if r.counts {
		out.Counter = &dto.Counter{Value: &r.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &r.value}
	}
	return nil
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }
