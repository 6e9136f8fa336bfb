package main

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

// fakeAdmission knows three controllers, of which one is connected nowhere.
type fakeAdmission struct {
	admissionv1.UnimplementedAdmissionServiceServer
}

func (fakeAdmission) ListControllers(context.Context, *admissionv1.ListControllersRequest) (*admissionv1.ListControllersResponse, error) {
	return &admissionv1.ListControllersResponse{At: at(0), Controllers: []*admissionv1.Controller{
		{
			Name: "image-policy", Scope: "instance", Deadline: durationpb.New(30 * time.Second), MaxBatch: 32,
			Presence: []*admissionv1.Presence{
				{Replica: "one", Instances: 2, Waiting: 40, Asked: 64, Silent: durationpb.New(1500 * time.Millisecond)},
				{Replica: "t\x1bwo", Instances: 1, Silent: durationpb.New(0)},
			},
		},
		{Name: "licence", Scope: "group", Groups: []int64{3, 4, 5, 6, 7, 8, 9}, Deadline: durationpb.New(time.Minute), DryRun: true, MaxBatch: 1},
		{Name: "four-eyes", Scope: "project", Projects: []int64{7}, Deadline: durationpb.New(time.Hour), MaxBatch: 8, SendScript: true, SendEnv: []string{"CI_COMMIT_REF"}},
	}}, nil
}
