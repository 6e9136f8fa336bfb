package server

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
)

// timestamp leaves a zero time unset: it is "never", not the year 1.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func poolToProto(p *PoolStatus) *adminv1.PoolStatus {
	return &adminv1.PoolStatus{
		Name:                p.Pool.Name,
		Provider:            p.Pool.Provider,
		Group:               p.Pool.Group,
		Fingerprint:         p.Pool.Capability.Fingerprint().String(),
		Capability:          capabilityToProto(p.Pool.Capability),
		Priority:            int32(p.Pool.Priority),
		CapacityPerInstance: int32(p.Pool.CapacityPerInstance),
		Min:                 int32(p.Min),
		Max:                 int32(p.Max),
		Pending:             int64(p.Pending),
		Running:             int64(p.Running),
		Desired:             int32(p.Desired),
		InService:           int32(p.InService),
		Booting:             int32(p.Booting),
		Draining:            int32(p.Draining),
		Lost:                int32(p.Lost),
		Hold:                string(p.Hold),
		LastReason:          string(p.Reason),
		DecidedAt:           timestamp(p.DecidedAt),
		LastSuccess:         timestamp(p.LastSuccess),
		Finding:             config.Redact(p.Finding),
	}
}

func capabilityToProto(c spillway.Capability) *typesv1.Capability {
	c = c.Normalize()
	return &typesv1.Capability{
		Tags:        c.Tags,
		RunUntagged: c.RunUntagged,
		Protected:   c.Protected,
		Type:        string(c.Type),
		Groups:      c.Groups,
		Projects:    c.Projects,
		Resources:   resourcesToProto(c.Resources),
		Origin:      c.Origin,
	}
}

func requirementToProto(r spillway.Requirement) *typesv1.Requirement {
	r = r.Normalize()
	return &typesv1.Requirement{
		Tags:      r.Tags,
		Protected: r.Protected,
		Project:   r.Project,
		Groups:    r.Groups,
		Resources: resourcesToProto(r.Resources),
		Origin:    r.Origin,
	}
}

// resourcesToProto leaves undeclared resources unset.
func resourcesToProto(r spillway.Resources) *typesv1.Resources {
	if r.MilliCPU == 0 && r.MemoryMiB == 0 && len(r.Features) == 0 {
		return nil
	}
	return &typesv1.Resources{MilliCpu: r.MilliCPU, MemoryMib: r.MemoryMiB, Features: r.Features}
}

func demandToProto(v DemandView) *adminv1.ListDemandResponse {
	resp := &adminv1.ListDemandResponse{At: timestamp(v.At)}
	for _, s := range v.Signals {
		resp.Signals = append(resp.Signals, session.SignalToProto(s))
	}
	for _, c := range v.Classes {
		p := &adminv1.ClassDemand{
			JobClass:    string(c.Class),
			Requirement: requirementToProto(c.Requirement),
			Pending:     int64(c.Pending),
			Attributed:  make(map[string]int64, len(c.Attributed)),
			Unmatched:   int64(c.Unmatched),
			Overflow:    int64(c.Overflow),
			Reason:      c.Reason,
		}
		if !c.Oldest.IsZero() {
			p.Oldest = durationpb.New(max(0, v.At.Sub(c.Oldest)))
		}
		for _, id := range c.Sample {
			p.JobIds = append(p.JobIds, string(id))
		}
		for pool, jobs := range c.Attributed {
			p.Attributed[pool] = int64(jobs)
		}
		resp.Classes = append(resp.Classes, p)
	}
	return resp
}

func runnerToProto(m router.Machine, fingerprint string, silent bool) *adminv1.Runner {
	return &adminv1.Runner{
		MachineId:   string(m.ID),
		InstanceId:  m.InstanceID,
		Pool:        m.Pool,
		Fingerprint: fingerprint,
		Capacity:    int32(m.Capacity),
		Busy:        int32(m.InUse()),
		Draining:    m.Draining || !m.StoppingSince.IsZero(),
		HeardAt:     timestamp(m.HeardAt),
		Version:     m.Version,
		Silent:      silent,
		Paused:      m.Paused,
		Unhealthy:   config.Redact(m.Unhealthy),
	}
}

func feedToProto(f FeedStatus) *adminv1.Source {
	s := &adminv1.Source{Name: f.Name, GoodAt: timestamp(f.GoodAt), Error: config.Redact(f.Error), Partial: f.Partial, Calls: int64(f.Calls)}
	if f.Every > 0 {
		s.Every = durationpb.New(f.Every)
	}
	return s
}

func pluginToProto(p PluginStatus) *adminv1.Plugin {
	return &adminv1.Plugin{
		Provider:        p.Provider,
		Name:            p.Name,
		Version:         p.Version,
		Path:            p.Path,
		Sha256:          p.SHA256,
		State:           p.State,
		Pid:             int32(p.PID),
		Restarts:        int32(p.Restarts),
		ContractVersion: int32(p.Contract),
		LastError:       config.Redact(p.LastError),
		Capabilities:    p.Capabilities,
		StartedAt:       timestamp(p.StartedAt),
	}
}

func decisionToProto(e LedgerEntry) *adminv1.Decision {
	p := &adminv1.Decision{
		At:        timestamp(e.At),
		Pool:      e.Pool,
		From:      int32(e.From),
		To:        int32(e.To),
		Direction: string(e.Direction),
		Reason:    string(e.Reason),
		Action:    e.Action,
		Result:    config.Redact(e.Result),
		Epoch:     e.Epoch,
	}
	for _, t := range e.Trace {
		p.Trace = append(p.Trace, &adminv1.Step{Name: t.Step, Before: int32(t.Before), After: int32(t.After), Why: config.Redact(t.Why)})
	}
	return p
}

func explanationToProto(e JobExplanation) *adminv1.WhyNotResponse {
	resp := &adminv1.WhyNotResponse{Record: session.RecordToProto(&e.Record, e.Fingerprint), Summary: e.Summary}
	for _, v := range e.Verdicts {
		resp.Verdicts = append(resp.Verdicts, &adminv1.PoolVerdict{
			Pool: v.Pool, CanTake: v.CanTake, Predicate: string(v.Predicate), Detail: v.Detail,
		})
	}
	return resp
}
