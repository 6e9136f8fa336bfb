package jobfile

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// ToProto is a job as it is pushed. It shares the job's slices and maps.
func ToProto(job *spillway.Job) *typesv1.Job {
	r := &job.Requirement
	p := &typesv1.Job{
		Id:          string(job.ID),
		Name:        job.Name,
		Requirement: &typesv1.Requirement{Tags: r.Tags, Protected: r.Protected, Project: r.Project, Groups: r.Groups},
		Priority:    int32(job.Priority),
		Script:      job.Script,
		Env:         job.Env,
		NoRetry:     job.NoRetry,
		MaxAttempts: int32(job.MaxAttempts),
		Image:       job.Image,

		Affinity:     job.Affinity,
		AntiAffinity: job.AntiAffinity,
	}
	if res := &r.Resources; res.MilliCPU != 0 || res.MemoryMiB != 0 || len(res.Features) > 0 {
		p.Requirement.Resources = &typesv1.Resources{MilliCpu: res.MilliCPU, MemoryMib: res.MemoryMiB, Features: res.Features}
	}
	if job.Timeout > 0 {
		p.Timeout = durationpb.New(job.Timeout)
	}
	return p
}
