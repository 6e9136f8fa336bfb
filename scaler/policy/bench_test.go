package policy_test

import (
	"testing"
	"time"

	"github.com/spillway-ci/spillway/scaler/policy"
)

func BenchmarkDecide(b *testing.B) {
	damped := rules(func(p *policy.Policy) {
		p.Max, p.IdleCount, p.IdleFactor, p.Tolerance, p.InPercentBudget = 100, 2, 0.1, 0.1, 25
		p.In = policy.Rules{Stabilization: 5 * time.Minute, Cooldown: time.Minute, StepLimit: 5}
		p.Out = policy.Rules{Stabilization: time.Minute, StepLimit: 5}
	})
	for _, c := range []struct {
		name string
		p    policy.Policy
		o    policy.Observation
	}{
		{"steady", rules(nil), policy.Observation{Running: 8, Usable: 8, InUse: 8}},
		{"out", rules(nil), policy.Observation{Running: 3, Attributed: 4, Usable: 3, InUse: 3, Draining: 1}},
		{"damped", damped, policy.Observation{Running: 20, Usable: 60, InUse: 20, Removable: 40}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var s policy.State
			now := t0
			for range 200 { // a full window
				now = now.Add(5 * time.Second)
				_, s = policy.Decide(c.p, s, seen(c.o), now)
			}
			o := seen(c.o)
			b.ReportAllocs()
			for b.Loop() {
				policy.Decide(c.p, s, o, now)
			}
		})
	}
}
