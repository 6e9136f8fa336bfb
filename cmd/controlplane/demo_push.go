package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/jobfile"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// pusher talks to the job service as any client would.
type pusher struct{ conn *grpc.ClientConn }

// push sends all jobs and waits until each is acknowledged as stored.
func (p *pusher) push(ctx context.Context, jobs []spillway.Job) error {
	stream, err := jobsv1.NewJobServiceClient(p.conn).Push(ctx)
	if err != nil {
		return fmt.Errorf("pushing jobs: %w", err)
	}
	var g errgroup.Group
	g.Go(func() error {
		for i := range jobs {
			if err := stream.Send(&jobsv1.PushRequest{Job: jobfile.ToProto(&jobs[i])}); err != nil {
				return fmt.Errorf("pushing jobs: %w", err)
			}
		}
		return stream.CloseSend()
	})
	g.Go(func() error {
		for {
			ack, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return fmt.Errorf("pushing jobs: %w", err)
			case ack.GetStatus() != jobsv1.PushStatus_PUSH_STATUS_ACCEPTED:
				return fmt.Errorf("job %s was not accepted: %s %s", ack.GetJobId(), ack.GetStatus(), ack.GetDetail())
			}
		}
	})
	return g.Wait()
}

// pageSize is the largest page that the service gives.
const pageSize = 1000

// records lists every job.
func (p *pusher) records(ctx context.Context) ([]*typesv1.JobRecord, error) {
	var out []*typesv1.JobRecord
	for token := ""; ; {
		resp, err := jobsv1.NewJobServiceClient(p.conn).List(ctx, &jobsv1.ListRequest{PageSize: pageSize, PageToken: token})
		if err != nil {
			return nil, fmt.Errorf("listing jobs: %w", err)
		}
		out = append(out, resp.GetRecords()...)
		if token = resp.GetNextPageToken(); token == "" {
			return out, nil
		}
	}
}

// terminal reports whether a job has ended.
func terminal(r *typesv1.JobRecord) bool {
	switch r.GetState() {
	case typesv1.JobState_JOB_STATE_COMPLETED, typesv1.JobState_JOB_STATE_FAILED,
		typesv1.JobState_JOB_STATE_REJECTED, typesv1.JobState_JOB_STATE_CANCELED:
		return true
	default:
		return false
	}
}
