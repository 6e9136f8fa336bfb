package suite

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/measure"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// maxDecideMicros is what one decision may take: a thousand pools in one tick then
// cost 20 ms of one CPU.
const maxDecideMicros = 20

func policyDecide() Benchmark {
	return Benchmark{"policy/decide", "one decision of one pool", runPolicyDecide}
}

func runPolicyDecide(ctx context.Context, b *bench) error {
	calls := b.pick(50_000, 5_000)
	grow := policy.Observation{Running: 20, Attributed: 15, Usable: 18, Booting: 2, Draining: 1, InUse: 18}
	shrink := policy.Observation{Running: 20, Usable: 60, InUse: 20, Removable: 40}
	subjects := []measure.Subject{
		decideSubject("no rule but need and bounds", plainPolicy(), grow, calls),
		decideSubject("every rule on, growing", damped(), grow, calls),
		decideSubject("every rule on, shrinking", damped(), shrink, calls),
	}
	all, err := measure.Rounds(ctx, b.Rounds, subjects)
	if err != nil {
		return err
	}
	b.add(measure.ReferenceRow(all[0], "µs"))
	for _, s := range all[1:] {
		b.add(measure.RowOf(s, "µs").Against(s, all[0]).Judged(measure.ValueAtMost(maxDecideMicros)))
	}
	return nil
}

func plainPolicy() policy.Policy { return policy.Policy{Max: 100, CapacityPerInstance: 1} }

func damped() policy.Policy {
	p := plainPolicy()
	p.IdleCount, p.IdleFactor, p.IdleTime = 2, 0.1, 10*time.Minute
	p.Tolerance, p.InPercentBudget, p.MaxRemovalsPerTick = 0.1, 25, 10
	p.In = policy.Rules{Stabilization: 5 * time.Minute, Cooldown: time.Minute, StepLimit: 5}
	p.Out = policy.Rules{Stabilization: time.Minute, Cooldown: 10 * time.Second, StepLimit: 5}
	return p
}

// decideSubject decides again and again, a second of virtual time apart, so that the
// windows of the rules are full.
func decideSubject(name string, p policy.Policy, o policy.Observation, calls int) measure.Subject {
	o.GroupDesired, o.GroupMax, o.LaunchClamp = o.Usable+o.Booting+o.Draining, 100, -1
	var state policy.State
	now := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	return measure.Subject{Name: name, Run: func(context.Context) (float64, error) {
		began := time.Now()
		for range calls {
			now = now.Add(time.Second)
			_, state = policy.Decide(p, state, o, now)
		}
		return micros(time.Since(began)) / float64(calls), nil
	}}
}
