package session

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spillway-ci/spillway"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// The nouns on the wire. Slices and maps are shared, not copied: neither side
// changes a message or a job once it has been handed on.

var stateToProto = map[spillway.JobState]typesv1.JobState{
	spillway.Pending:   typesv1.JobState_JOB_STATE_PENDING,
	spillway.Routing:   typesv1.JobState_JOB_STATE_ROUTING,
	spillway.Admitted:  typesv1.JobState_JOB_STATE_ADMITTED,
	spillway.Assigned:  typesv1.JobState_JOB_STATE_ASSIGNED,
	spillway.Running:   typesv1.JobState_JOB_STATE_RUNNING,
	spillway.Completed: typesv1.JobState_JOB_STATE_COMPLETED,
	spillway.Failed:    typesv1.JobState_JOB_STATE_FAILED,
	spillway.Rejected:  typesv1.JobState_JOB_STATE_REJECTED,
	spillway.Canceled:  typesv1.JobState_JOB_STATE_CANCELED,
}

var stateFromProto = func() map[typesv1.JobState]spillway.JobState {
	inverse := make(map[typesv1.JobState]spillway.JobState, len(stateToProto))
	for state, wire := range stateToProto {
		inverse[wire] = state
	}
	return inverse
}()

// jobFromProto reads a pushed job. It is not validated yet; who submitted it does
// not say when it was accepted.
func jobFromProto(p *typesv1.Job) spillway.Job {
	job := spillway.Job{
		ID:          spillway.JobID(p.GetId()),
		Name:        p.GetName(),
		Requirement: requirementFromProto(p.GetRequirement()),
		Priority:    int(p.GetPriority()),
		Script:      p.GetScript(),
		Env:         p.GetEnv(),
		NoRetry:     p.GetNoRetry(),
		MaxAttempts: int(p.GetMaxAttempts()),
		Image:       p.GetImage(),

		Affinity:     p.GetAffinity(),
		AntiAffinity: p.GetAntiAffinity(),
	}
	if p.GetTimeout() != nil {
		job.Timeout = p.GetTimeout().AsDuration()
	}
	return job
}

func requirementFromProto(p *typesv1.Requirement) spillway.Requirement {
	return spillway.Requirement{
		Tags:      p.GetTags(),
		Protected: p.GetProtected(),
		Project:   p.GetProject(),
		Groups:    p.GetGroups(),
		Resources: spillway.Resources{
			MilliCPU:  p.GetResources().GetMilliCpu(),
			MemoryMiB: p.GetResources().GetMemoryMib(),
			Features:  p.GetResources().GetFeatures(),
		},
	}
}

// jobToProto writes a job for the machine that will run it.
func jobToProto(job *spillway.Job) *typesv1.Job {
	p := &typesv1.Job{
		Id:          string(job.ID),
		Name:        job.Name,
		Requirement: requirementToProto(job.Requirement),
		Priority:    int32(job.Priority),
		Script:      job.Script,
		Env:         job.Env,
		NoRetry:     job.NoRetry,
		Image:       job.Image,
		MaxAttempts: int32(job.MaxAttempts),
		SubmittedAt: timeToProto(job.SubmittedAt),

		Affinity:     job.Affinity,
		AntiAffinity: job.AntiAffinity,
	}
	if job.Timeout > 0 {
		p.Timeout = durationpb.New(job.Timeout)
	}
	return p
}

func requirementToProto(r spillway.Requirement) *typesv1.Requirement {
	p := &typesv1.Requirement{Tags: r.Tags, Protected: r.Protected, Project: r.Project, Groups: r.Groups, Origin: r.Origin}
	if r.Resources.MilliCPU != 0 || r.Resources.MemoryMiB != 0 || len(r.Resources.Features) > 0 {
		p.Resources = &typesv1.Resources{MilliCpu: r.Resources.MilliCPU, MemoryMib: r.Resources.MemoryMiB, Features: r.Resources.Features}
	}
	return p
}

// RecordToProto writes what is known of a job, without its script and
// environment: they are the runner's only.
func RecordToProto(record *spillway.JobRecord, fingerprint string) *typesv1.JobRecord {
	public := record.Job
	public.Script, public.Env = "", nil
	p := &typesv1.JobRecord{
		Job:                   jobToProto(&public),
		State:                 stateToProto[record.State],
		Attempt:               int32(record.Attempt),
		Pool:                  record.Pool,
		MachineId:             string(record.Machine),
		ClaimedAt:             timeToProto(record.ClaimedAt),
		StartedAt:             timeToProto(record.StartedAt),
		FinishedAt:            timeToProto(record.FinishedAt),
		CapabilityFingerprint: fingerprint,
		JobClass:              string(record.Job.Requirement.Class()),
		Transitions:           transitionsToProto(record.Transitions),
		Quarantined:           record.Quarantined,
		Lost:                  int32(record.Lost),
	}
	if record.State.Terminal() {
		p.Result = resultToProto(&record.Result)
	}
	return p
}

func resultToProto(r *spillway.JobResult) *typesv1.JobResult {
	return &typesv1.JobResult{
		State:    stateToProto[r.State],
		Reason:   string(r.Reason),
		Detail:   r.Detail,
		ExitCode: int32(r.ExitCode),
		Output:   r.Output,
	}
}

func transitionsToProto(list []spillway.JobTransition) []*typesv1.JobTransition {
	all := make([]*typesv1.JobTransition, len(list))
	for i := range list {
		t := &list[i]
		all[i] = &typesv1.JobTransition{
			Sequence:  t.Sequence,
			State:     stateToProto[t.State],
			Attempt:   int32(t.Attempt),
			Pool:      t.Pool,
			MachineId: string(t.Machine),
			At:        timeToProto(t.At),
			Reason:    t.Reason,
		}
	}
	return all
}

// SignalToProto writes a signal.
func SignalToProto(s spillway.Signal) *typesv1.Signal {
	return &typesv1.Signal{
		Fingerprint:     s.Fingerprint.String(),
		TotalJobs:       int64(s.TotalJobs),
		TotalRunners:    int64(s.TotalRunners),
		DemandPerRunner: s.DemandPerRunner,
		At:              timeToProto(s.At),
	}
}

// timeToProto leaves the zero time unset.
func timeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
