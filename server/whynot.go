package server

import (
	"fmt"
	"strings"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// ExplainJob says for each pool what keeps the job from running there: the
// predicate that fails, or what a pool that could take it waits for.
func ExplainJob(record spillway.JobRecord, pools []PoolStatus) JobExplanation {
	e := JobExplanation{Record: record}
	var able []string
	for i := range pools {
		p := &pools[i]
		if p.Pool.Name == record.Pool {
			e.Fingerprint = p.Pool.Capability.Fingerprint().String()
		}
		v := router.Explain(&p.Pool.Capability, &record.Job.Requirement)
		verdict := PoolVerdict{Pool: p.Pool.Name, CanTake: v.OK(), Predicate: v.Predicate, Detail: v.Detail}
		if v.OK() {
			verdict.Detail = waitsFor(p)
			able = append(able, p.Pool.Name)
		}
		e.Verdicts = append(e.Verdicts, verdict)
	}
	e.Summary = summary(&record, able, len(pools))
	return e
}

// waitsFor says what a pool that can take a job does about it.
func waitsFor(p *PoolStatus) string {
	present := p.InService + p.Booting
	switch {
	case p.Hold != "":
		return fmt.Sprintf("could take it; the pool is held (%s)%s", p.Hold, because(p.Finding))
	case p.Idle > 0:
		return fmt.Sprintf("could take it now: %d of %d instances are free", p.Idle, p.InService)
	case p.Pool.Provider == "":
		return fmt.Sprintf("could take it when one of its machines is free: %d are there, and they come by themselves", p.InService)
	case p.Booting > 0:
		return fmt.Sprintf("could take it when one of %d booting instances has registered", p.Booting)
	case present >= p.Max:
		return fmt.Sprintf("could take it; it is full, with %d instances of at most %d", present, p.Max)
	default:
		return fmt.Sprintf("could take it; %d instances may still be launched%s", p.Max-present, because(p.Finding))
	}
}

func because(finding string) string {
	if finding == "" {
		return ""
	}
	return ": " + finding
}

func summary(r *spillway.JobRecord, able []string, pools int) string {
	switch {
	case r.State.Terminal():
		s := fmt.Sprintf("The job has ended: %s", r.State)
		if r.Result.Reason != "" {
			s += fmt.Sprintf(" (%s)", r.Result.Reason)
		}
		return s + "."
	case r.State == spillway.Running:
		return fmt.Sprintf("The job is running in pool %s.", r.Pool)
	case r.State == spillway.Assigned:
		return fmt.Sprintf("The job was given to a machine of pool %s, which has not started it yet.", r.Pool)
	case len(able) == 0:
		return fmt.Sprintf("None of %d pools can take the job: no number of instances would help. Change its tags, or add a pool.", pools)
	default:
		return fmt.Sprintf("The job waits. It can run in %s.", strings.Join(able, ", "))
	}
}
