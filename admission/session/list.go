package session

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

// ListControllers tells what is configured, and what replicas have said last.
func (v *Service) ListControllers(context.Context, *admissionv1.ListControllersRequest) (*admissionv1.ListControllersResponse, error) {
	resp := &admissionv1.ListControllersResponse{}
	if v.reviewer == nil {
		return resp, nil
	}
	said, at := v.reviewer.seen.list()
	if !at.IsZero() {
		resp.At = timestamppb.New(at)
	}
	for _, c := range v.reviewer.policy.Load().Controllers() {
		p := &admissionv1.Controller{
			Name: c.Name, Scope: string(c.Scope), Groups: c.Groups, Projects: c.Projects, Deadline: durationpb.New(c.Deadline),
			DryRun: c.DryRun, MaxBatch: int32(c.Batch), SendScript: c.Send.Script, SendEnv: c.Send.Env,
		}
		for i := range said {
			if s := &said[i]; s.Controller == c.Name {
				p.Presence = append(p.Presence, &admissionv1.Presence{
					Replica: s.Replica, Instances: int32(s.Instances), Waiting: int32(s.Waiting), Asked: int32(s.Asked),
					Silent: durationpb.New(s.Silent.Truncate(time.Millisecond)),
				})
			}
		}
		resp.Controllers = append(resp.Controllers, p)
	}
	return resp, nil
}
