package session

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

const (
	// maxPushBatch bounds the jobs that are stored with one call [jobs]; a script
	// blocks the store's server while it runs.
	maxPushBatch = 512
	// maxPushBytes bounds what one push stream has sent and is not stored [bytes]; one
	// message more may come along.
	maxPushBytes = 4 << 20
)

// arrival is one pushed job on its way to the store.
type arrival struct {
	job   spillway.Job
	bytes int64 // of the budget
}

// Push stores what has arrived, in one call, while the next jobs arrive: a caller
// that does not wait for each acknowledgement is served in large batches, and one
// that does is not delayed.
func (j *Jobs) Push(rpc jobsv1.JobService_PushServer) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = panicStatus(j.dispatcher.opt.Events, panicked)
		}
	}()
	ctx, cancel := context.WithCancel(rpc.Context())
	defer cancel()
	budget := semaphore.NewWeighted(maxPushBytes)
	arrivals := make(chan arrival, maxPushBatch)
	received := make(chan error, 1)
	go func() {
		defer close(arrivals)
		received <- receive(ctx, rpc, budget, arrivals)
	}()
	for batch := collect(arrivals); len(batch) > 0; batch = collect(arrivals) {
		if err := j.accept(ctx, rpc, batch); err != nil {
			return err
		}
		for i := range batch {
			budget.Release(batch[i].bytes)
		}
	}
	return endedWith(<-received)
}

// receive passes on what the caller sends, as long as the budget of bytes allows.
func receive(ctx context.Context, rpc jobsv1.JobService_PushServer, budget *semaphore.Weighted, arrivals chan<- arrival) (err error) {
	defer func() {
		if recover() != nil { // of a message that nobody expected: the caller's stream ends
			err = status.Error(codes.Internal, "internal error")
		}
	}()
	for {
		m, err := rpc.Recv()
		if err != nil {
			return err
		}
		a := arrival{job: jobFromProto(m.GetJob())}
		a.bytes = min(sizeOf(&a.job), maxPushBytes)
		if err := budget.Acquire(ctx, a.bytes); err != nil {
			return err
		}
		select {
		case arrivals <- a:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sizeOf is roughly what a job holds in memory [bytes].
func sizeOf(job *spillway.Job) int64 {
	n := 512 + len(job.Script) + 8*len(job.Requirement.Groups)
	for name, value := range job.Env {
		n += len(name) + len(value)
	}
	for _, tag := range job.Requirement.Tags {
		n += len(tag)
	}
	return int64(n)
}

// collect waits for one arrival and takes what else is there; nothing when no
// more will come.
func collect(arrivals <-chan arrival) []arrival {
	first, ok := <-arrivals
	if !ok {
		return nil
	}
	batch := append(make([]arrival, 0, 1+len(arrivals)), first)
	for len(batch) < maxPushBatch {
		select {
		case a, ok := <-arrivals:
			if !ok {
				return batch
			}
			batch = append(batch, a)
		default:
			return batch
		}
	}
	return batch
}

// accept stores a batch and acknowledges each of its jobs, in order.
func (j *Jobs) accept(ctx context.Context, rpc jobsv1.JobService_PushServer, batch []arrival) error {
	acks := make([]*jobsv1.PushResponse, len(batch))
	valid := make([]spillway.Job, 0, len(batch))
	var at []int // of the valid ones in acks
	for i := range batch {
		job := &batch[i].job
		acks[i] = &jobsv1.PushResponse{JobId: head(string(job.ID), spillway.MaxJobIDBytes)}
		if err := job.Validate(); err != nil {
			acks[i].Status, acks[i].Detail = jobsv1.PushStatus_PUSH_STATUS_INVALID, head(err.Error(), 4*MaxDetailBytes)
			continue
		}
		valid = append(valid, *job)
		at = append(at, i)
	}
	var accepted []spillway.Job
	if len(valid) > 0 {
		outcomes, err := j.store.Push(ctx, valid)
		for k := range valid {
			acks[at[k]].Status, acks[at[k]].Detail = pushStatus(outcomes, k, err)
			if acks[at[k]].Status == jobsv1.PushStatus_PUSH_STATUS_ACCEPTED {
				accepted = append(accepted, valid[k])
			}
		}
		if err != nil {
			tell(j.dispatcher.opt.Events.StoreTrouble, StoreTrouble{Op: "push", Err: err})
		}
	}
	j.announce(ctx, accepted)
	tell(j.dispatcher.opt.Events.JobsPushed, countPushed(acks))
	for _, ack := range acks {
		if err := rpc.Send(ack); err != nil {
			return err
		}
	}
	return nil
}

// announce tells the dispatcher of new jobs, by class, and the scaler that there
// are some.
func (j *Jobs) announce(ctx context.Context, accepted []spillway.Job) {
	if len(accepted) == 0 {
		return
	}
	now := time.Now()
	var counts []router.ClassCount
	index := make(map[spillway.JobClass]int)
	for i := range accepted {
		job := &accepted[i]
		class := job.Requirement.Class()
		k, ok := index[class]
		if !ok {
			k = len(counts)
			index[class] = k
			counts = append(counts, router.ClassCount{Class: class, Requirement: job.Requirement, Priority: job.Priority, Oldest: now})
		}
		counts[k].Pending++
		counts[k].Priority = min(counts[k].Priority, job.Priority)
	}
	j.dispatcher.put(ctx, event{kind: jobsPushed, pushed: counts})
	j.onPushed()
}

// pushStatus is the acknowledgement of the k-th job of a call.
func pushStatus(outcomes []store.PushOutcome, k int, err error) (jobsv1.PushStatus, string) {
	var outcome store.PushOutcome
	if k < len(outcomes) {
		outcome = outcomes[k]
	}
	switch outcome {
	case store.Accepted:
		return jobsv1.PushStatus_PUSH_STATUS_ACCEPTED, ""
	case store.Duplicate:
		return jobsv1.PushStatus_PUSH_STATUS_DUPLICATE, ""
	case store.Conflict:
		return jobsv1.PushStatus_PUSH_STATUS_CONFLICT, "a job with this id and another content is known: nothing was changed"
	case store.Full:
		return jobsv1.PushStatus_PUSH_STATUS_QUEUE_FULL, "the queue is full: push it again later"
	}
	detail := "the store did not confirm it: push it again"
	if err != nil {
		detail = status.Convert(storeStatus(err)).Message()
	}
	return jobsv1.PushStatus_PUSH_STATUS_UNAVAILABLE, detail
}

func countPushed(acks []*jobsv1.PushResponse) (e JobsPushed) {
	for _, ack := range acks {
		switch ack.GetStatus() {
		case jobsv1.PushStatus_PUSH_STATUS_ACCEPTED:
			e.Accepted++
		case jobsv1.PushStatus_PUSH_STATUS_DUPLICATE:
			e.Duplicate++
		case jobsv1.PushStatus_PUSH_STATUS_CONFLICT:
			e.Conflict++
		case jobsv1.PushStatus_PUSH_STATUS_INVALID:
			e.Invalid++
		case jobsv1.PushStatus_PUSH_STATUS_QUEUE_FULL:
			e.Full++
		default:
			e.Unavailable++
		}
	}
	return e
}
