package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// The targets of a fleet in which nothing happens.
const (
	maxEvaluationMicros = 20
	maxServeMiB         = 64
)

func reactSteady() Benchmark {
	return Benchmark{"react/steady", "many pools, one machine each, every other one has a job: nothing is to be done", runSteady}
}

func runSteady(ctx context.Context, b *bench) error {
	return withFleet(ctx, b, fleetShape{
		pools:  b.pick(1_000, 200),
		tick:   reactTick,
		group:  asgstub.GroupConfig{Min: 1, Desired: 1, Max: reactMax, NewInstancesProtected: true},
		policy: map[string]any{"min": 1, "max": reactMax},
		tokens: true,
	}, steady)
}

func steady(ctx context.Context, b *bench, s *served, f fleetShape) error {
	instances := make([]string, f.pools)
	for i := range instances {
		instances[i] = s.cloud.Existing(groupName(i))[0].ID
	}
	machines, err := startSteadyMachines(ctx, s.plane.log.at.Runners, instances)
	if err != nil {
		return err
	}
	defer machines.Stop()
	var busy []int
	for i := 0; i < f.pools; i += 2 {
		busy = append(busy, i)
	}
	if _, _, err := s.push(busy); err != nil {
		return err
	}
	if err := settle(ctx); err != nil {
		return err
	}
	window := time.Duration(b.pick(60, 20)) * time.Second
	seen, err := s.watch(ctx, window, b.Rounds)
	if err != nil {
		return err
	}
	seen.rows(b, f.pools)
	b.note("%d pools, tick %s, %s, %d at work; machines share connections by %d, with heartbeats every 15 s; one evaluation is one pool's tick, and its share of all else that the process does", f.pools, reactTick, window, len(busy), streamsPerConnection)
	return nil
}

// quietTime is what a control plane did and used while nothing was to be done.
type quietTime struct {
	refreshes     []refresh
	calls         []asgstub.Call
	plane, plugin measure.Series // CPU [µs per evaluation], a part of the time each
	memory        [2]measure.Usage
	known         bool // there is a /proc
}

// watch looks on for a while, in so many parts.
func (s *served) watch(ctx context.Context, window time.Duration, parts int) (*quietTime, error) {
	if err := s.betweenRefreshes(ctx); err != nil {
		return nil, err
	}
	before := len(s.cloud.Calls())
	q := &quietTime{plane: measure.Series{Name: "CPU per evaluation: control plane"}, plugin: measure.Series{Name: "CPU per evaluation: plugin"}}
	plugin := 0
	if children := measure.ChildrenOf(s.plane.pid()); len(children) > 0 {
		plugin = children[0] // it has no other
	}
	evaluations := float64(len(s.cloud.Groups())) * float64(window) / float64(parts) / float64(s.tick)
	for range parts {
		was, known := usageOf(s.plane.pid(), plugin)
		if err := wait(ctx, window/time.Duration(parts)); err != nil {
			return nil, err
		}
		is, still := usageOf(s.plane.pid(), plugin)
		q.memory, q.known = is, known && still
		q.plane.Figures = append(q.plane.Figures, micros(is[0].CPU-was[0].CPU)/evaluations)
		q.plugin.Figures = append(q.plugin.Figures, micros(is[1].CPU-was[1].CPU)/evaluations)
	}
	if err := s.betweenRefreshes(ctx); err != nil {
		return nil, err
	}
	q.calls = s.cloud.Calls()[before:]
	q.refreshes = refreshesOf(q.calls, s.tick)
	if len(q.refreshes) == 0 {
		return nil, errors.New("the cloud was not asked at all")
	}
	return q, nil
}

func usageOf(plane, plugin int) (both [2]measure.Usage, known bool) {
	var ok bool
	both[0], known = measure.UsageOf(plane)
	both[1], ok = measure.UsageOf(plugin)
	return both, known && ok
}

// betweenRefreshes returns in the middle between two refreshes.
func (s *served) betweenRefreshes(ctx context.Context) error {
	const every = 10 * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, 3*reactTick, errors.New("the cloud is asked all the time, or never"))
	defer cancel()
	asked := s.cloud.CountOf(opDescribe)
	for s.cloud.CountOf(opDescribe) == asked {
		if err := wait(ctx, every); err != nil {
			return err
		}
	}
	return wait(ctx, s.tick/2)
}

// refresh is the looks at all groups that belong together.
type refresh struct{ describes, groups int }

// refreshesOf takes the looks apart by the pauses between them.
func refreshesOf(calls []asgstub.Call, tick time.Duration) (all []refresh) {
	var last time.Time
	for _, c := range good(calls, opDescribe) {
		if c.At.Sub(last) > tick/2 {
			all = append(all, refresh{})
		}
		last = c.At
		r := &all[len(all)-1]
		r.describes++
		for n := 1; c.Arg(fmt.Sprintf("AutoScalingGroupNames.member.%d", n)) != ""; n++ {
			r.groups++
		}
	}
	return all
}

// rows adds what was found. How many looks a refresh takes depends on how close
// together the pools ask, which the load of the machine can change: so that is no
// exact counter. That nothing is written is one.
func (q *quietTime) rows(b *bench, pools int) {
	describes := measure.Series{Name: "Describes a refresh"}
	missed := measure.Series{Name: "groups left out of a refresh"}
	for _, r := range q.refreshes {
		describes.Figures = append(describes.Figures, float64(r.describes))
		missed.Figures = append(missed.Figures, float64(max(0, pools-r.groups)))
	}
	least := (pools + namesPerDescribe - 1) / namesPerDescribe
	b.add(
		measure.RowOf(describes, "calls").Judged(measure.ValueAtMost(float64(least))),
		measure.RowOf(missed, "groups").Judged(measure.ValueAtMost(0)),
		measure.Exactly("writes to the cloud", "calls", writes(q.calls), 0),
	)
	if !q.known {
		b.add(measure.SkippedRow("CPU and memory", "there is no /proc on this system"))
		return
	}
	b.add(
		measure.RowOf(q.plane, "µs").Judged(measure.ValueAtMost(maxEvaluationMicros)),
		measure.RowOf(q.plugin, "µs"),
		measure.RowOf(mebibytes("memory: control plane", q.memory[0].Resident), "MiB").Judged(measure.ValueAtMost(maxServeMiB)),
		measure.RowOf(mebibytes("memory: control plane, peak", q.memory[0].Peak), "MiB"),
		measure.RowOf(mebibytes("memory: plugin", q.memory[1].Resident), "MiB"),
	)
	b.note("%d refreshes", len(q.refreshes))
}

func mebibytes(name string, bytes int64) measure.Series {
	return measure.Series{Name: name, Figures: []float64{float64(bytes) / (1 << 20)}}
}
