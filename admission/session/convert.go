package session

import (
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// reviewToProto is a review as the instance of a controller gets it.
func reviewToProto(b *admission.Batch, c *admission.Controller) *admissionv1.RouterMessage {
	review := &admissionv1.Review{BatchId: b.ID, Deadline: timestamppb.New(b.Due), Jobs: make([]*admissionv1.ReviewedJob, len(b.Subjects))}
	for i, s := range b.Subjects {
		review.Jobs[i] = subjectToProto(s, c)
	}
	return &admissionv1.RouterMessage{Message: &admissionv1.RouterMessage_Review{Review: review}}
}

// subjectToProto shows a controller what it may see of a job: script and variables only
// as its configuration says.
func subjectToProto(s *admission.Subject, c *admission.Controller) *admissionv1.ReviewedJob {
	job := &s.Job
	p := &admissionv1.ReviewedJob{
		JobId: s.ID, Name: job.Name, Requirement: requirementToProto(job.Requirement), Priority: int32(job.Priority),
		Image: job.Image, Services: s.Services, Timeout: durationpb.New(job.EffectiveTimeout()),
		Ref: s.Ref, ProjectPath: s.Path, Stage: s.Stage,
	}
	if !job.SubmittedAt.IsZero() {
		p.SubmittedAt = timestamppb.New(job.SubmittedAt)
	}
	if c.Send.Script {
		p.Script = job.Script
	}
	for _, name := range c.Send.Env {
		if v, ok := job.Env[name]; ok {
			if p.Env == nil {
				p.Env = make(map[string]string)
			}
			p.Env[name] = v
		}
	}
	return p
}

func requirementToProto(r spillway.Requirement) *typesv1.Requirement {
	p := &typesv1.Requirement{Tags: r.Tags, Protected: r.Protected, Project: r.Project, Groups: r.Groups, Origin: r.Origin}
	if res := r.Resources; res.MilliCPU != 0 || res.MemoryMiB != 0 || len(res.Features) > 0 {
		p.Resources = &typesv1.Resources{MilliCpu: res.MilliCPU, MemoryMib: res.MemoryMiB, Features: res.Features}
	}
	return p
}
