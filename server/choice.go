package server

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
)

// Choices knows how the router would choose a place for a job; store.ErrUnknownJob if
// there is no such job.
type Choices interface {
	Choice(ctx context.Context, id spillway.JobID) (JobChoice, error)
}

// JobChoice is how a place for a job would be chosen.
type JobChoice struct {
	Record      spillway.JobRecord
	Fingerprint string // of the pool that has it; empty while pending
	router.Choice
}

// ExplainJob says how the router of this replica would choose a place for a job.
func (a *Admin) ExplainJob(ctx context.Context, req *adminv1.ExplainJobRequest) (*adminv1.ExplainJobResponse, error) {
	id, err := jobID(req.GetJobId())
	if err != nil {
		return nil, err
	}
	choice, err := a.sources.Choices.Choice(ctx, id)
	if err != nil {
		return nil, asJobStatus(err, string(id))
	}
	return choiceToProto(&choice), nil
}

// jobID checks the name of a job that is asked about.
func jobID(id string) (spillway.JobID, error) {
	switch {
	case id == "":
		return "", status.Error(codes.InvalidArgument, "name the job to explain")
	case len(id) > spillway.MaxJobIDBytes:
		return "", status.Errorf(codes.InvalidArgument, "a job id has at most %d bytes, this one has %d", spillway.MaxJobIDBytes, len(id))
	}
	return spillway.JobID(id), nil
}

// InLightOf adds to an explanation what the router knows: which pools are not used
// though they could take the job, and until when.
func (e JobExplanation) InLightOf(c router.Choice) JobExplanation {
	if e.Record.State != spillway.Pending {
		return e
	}
	of := make(map[string]*router.PoolChoice, len(c.Pools))
	for i := range c.Pools {
		of[c.Pools[i].Pool] = &c.Pools[i]
	}
	for i := range e.Verdicts {
		v := &e.Verdicts[i]
		if p := of[v.Pool]; p != nil && v.CanTake && tells(p.Outcome) {
			v.Detail = "could take it; " + p.Detail
		}
	}
	if why := held(&c); why != "" {
		e.Summary += " " + why
	}
	return e
}

// tells reports whether the router knows more than how many instances there are.
func tells(o router.Outcome) bool {
	switch o {
	case router.OutcomeWaits, router.OutcomeElsewhere, router.OutcomeUnadmitted, router.OutcomeCooledOff, router.OutcomeDown,
		router.OutcomeRefused:
		return true
	default:
		return false
	}
}

// held is a sentence on why the job has no place though there is one; empty if there is
// none.
func held(c *router.Choice) string {
	refused := ""
	for i := range c.Pools {
		switch p := &c.Pools[i]; p.Outcome {
		case router.OutcomeUnadmitted:
			return "It waits for admission."
		case router.OutcomeFree:
			if c.ServedBefore > 0 {
				return fmt.Sprintf("%d jobs come before it.", c.ServedBefore)
			}
			return ""
		case router.OutcomeWaits:
			return fmt.Sprintf("Pool %s has a place, and a better pool is waited for: %s.", p.Pool, p.Detail)
		case router.OutcomeRefused:
			refused = fmt.Sprintf("Pool %s may not have it: %s.", p.Pool, p.Detail)
		default:
		}
	}
	return refused
}

func choiceToProto(c *JobChoice) *adminv1.ExplainJobResponse {
	resp := &adminv1.ExplainJobResponse{
		Record: session.RecordToProto(&c.Record, c.Fingerprint), At: timestamp(c.At),
		Waiting: int64(c.Waiting), Unadmitted: int64(c.Unadmitted), ProjectRunning: int64(c.Running), ServedBefore: int64(c.ServedBefore),
		Summary: c.summary(),
	}
	for i := range c.Pools {
		p := &c.Pools[i]
		out := &adminv1.PoolChoice{
			Pool: p.Pool, Priority: int32(p.Priority), CostPerJob: p.Cost, CanTake: p.Verdict.OK(), Predicate: string(p.Verdict.Predicate),
			Outcome: string(p.Outcome), Detail: p.Detail, Free: int64(p.Free), Elsewhere: int64(p.Remote), Room: int64(p.Room),
			Until: timestamp(p.Until),
		}
		for k := range p.Machines {
			s := &p.Machines[k]
			out.Machines = append(out.Machines, &adminv1.MachineScore{
				MachineId: string(s.Machine), Cost: s.Cost, History: s.History, Affinity: s.Affinity,
				AntiAffinity: s.AntiAffinity, Topology: s.Topology, Sum: s.Sum(),
			})
		}
		resp.Pools = append(resp.Pools, out)
	}
	return resp
}

// summary is what comes of the job, in a sentence or two.
func (c *JobChoice) summary() string {
	var able []string
	for i := range c.Pools {
		if c.Pools[i].Verdict.OK() {
			able = append(able, c.Pools[i].Pool)
		}
	}
	s := summary(&c.Record, able, len(c.Pools))
	if c.Record.State != spillway.Pending || len(able) == 0 {
		return s
	}
	if why := held(&c.Choice); why != "" {
		return s + " " + why
	}
	if pool, machine, ok := c.Best(); ok {
		return fmt.Sprintf("%s Machine %s of pool %s is the best place for it now.", s, machine, pool)
	}
	return strings.TrimSuffix(s, ".") + ", and none of these has a place now."
}
