package minirunner

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	jobrouterpb "github.com/spillway-ci/spillway/proto/gitlab/jobrouter"
	runnerrpcpb "github.com/spillway-ci/spillway/proto/gitlab/runnerrpc"
)

// router asks a Job Router for jobs, and GitLab where it can't: router/client.go.
type router struct {
	o       Options
	api     *api
	breaker *breaker
	conns   *conns
	counts  *counts
	mu      struct {
		sync.Mutex
		url     string
		expires time.Time
	}
}

// requestJob asks for a job, at the router if there is one that works.
func (r *router) requestJob(ctx context.Context) (job *payload, healthy bool) {
	server := r.server(ctx)
	if server == "" || !r.breaker.allow() {
		return r.direct(ctx)
	}
	conn, err := r.conns.to(server)
	if err != nil {
		r.breaker.failure()
		r.o.Log.WarnContext(ctx, "the job router can't be dialled", "url", server, "error", err)
		return r.direct(ctx)
	}
	body, err := r.api.request()
	if err != nil {
		r.breaker.failure()
		return nil, false
	}
	r.counts.getJobs.Add(1)
	var header metadata.MD
	answer, err := r.getJob(metadata.AppendToOutgoingContext(ctx, "x-request-id", newRequestID()), conn, body, grpc.Header(&header))
	if err != nil {
		return r.failed(ctx, err)
	}
	r.breaker.success()
	for _, last := range header.Get("x-gitlab-last-update") {
		r.api.seen(last)
	}
	if len(answer) == 0 {
		return nil, true
	}
	job, err = parse(answer)
	return job, err == nil
}

func (r *router) getJob(ctx context.Context, conn *grpc.ClientConn, body []byte, opts ...grpc.CallOption) ([]byte, error) {
	if r.o.OldRPC {
		answer, err := runnerrpcpb.NewJobRouterClient(conn).GetJob(ctx, &runnerrpcpb.GetJobRequest{JobRequest: body}, opts...)
		return answer.GetJobResponse(), err
	}
	answer, err := jobrouterpb.NewJobRouterClient(conn).GetJob(ctx, &jobrouterpb.GetJobRequest{JobRequest: body}, opts...)
	return answer.GetJobResponse(), err
}

// failed is what follows of an error of GetJob.
func (r *router) failed(ctx context.Context, err error) (job *payload, healthy bool) {
	r.o.Log.WarnContext(ctx, "the job router did not answer with a job", "code", status.Code(err))
	switch status.Code(err) {
	case codes.Unimplemented: // it is switched off
		r.breaker.success()
		r.forget()
		return r.direct(ctx)
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		if r.breaker.failure() {
			return r.direct(ctx)
		}
		return nil, true
	default:
		r.breaker.success()
		return nil, false
	}
}

func (r *router) direct(ctx context.Context) (job *payload, healthy bool) {
	r.counts.direct.Add(1)
	return r.api.requestJob(ctx)
}

// server is the router's URL, as GitLab said not long ago; "" = there is none.
func (r *router) server(ctx context.Context) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.mu.expires) {
		return r.mu.url
	}
	r.counts.discoveries.Add(1)
	r.mu.url = r.api.discover(ctx)
	r.mu.expires = time.Now().Add(r.o.Times.Discovery)
	return r.mu.url
}

func (r *router) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.url, r.mu.expires = "", time.Time{}
}

// payload is what a runner needs of a job.
type payload struct {
	ID      int64  `json:"id"`
	Token   string `json:"token"`
	JobInfo struct {
		TimeInQueueSeconds float64 `json:"time_in_queue_seconds"`
		QueueSize          float64 `json:"queue_size"`
		QueueDepth         float64 `json:"queue_depth"`
	} `json:"job_info"`
	RunnerInfo struct {
		Timeout int64 `json:"timeout"` // seconds
	} `json:"runner_info"`
	Variables []struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	} `json:"variables"`
	Steps []struct {
		Name   string   `json:"name"`
		Script []string `json:"script"`
	} `json:"steps"`
	Features struct {
		FailureReasons []string `json:"failure_reasons"`
	} `json:"features"`
}

func parse(body []byte) (*payload, error) {
	var p payload
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	return &p, nil
}
