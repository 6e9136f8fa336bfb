package session

import (
	"context"
	"maps"
	"sync"
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
	// positionBytes is roughly what one position to resume at holds in memory [bytes].
	positionBytes = 128
)

// arrival is one pushed job on its way to the store, or positions to report from.
type arrival struct {
	job    spillway.Job
	report bool
	resume map[spillway.JobID]int64
	pushes bool  // there is a job
	bytes  int64 // of the budget
}

// pushStream is one caller's stream. Acknowledgements and reports take turns on it.
type pushStream struct {
	jobs   *Jobs
	rpc    jobsv1.JobService_PushServer
	cancel context.CancelFunc // ends what goes on beside the handler
	turn   sync.Mutex

	reporter  *reporter // nil until somebody wants a report
	stopper   *stopper  // of a stream with reports
	reporting sync.WaitGroup
}

func (p *pushStream) send(m *jobsv1.PushResponse) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	return p.rpc.Send(m)
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
	p := &pushStream{jobs: j, rpc: rpc, cancel: cancel}
	defer p.endReports()
	budget := semaphore.NewWeighted(maxPushBytes)
	arrivals := make(chan arrival, maxPushBatch)
	received := make(chan error, 1)
	go func() {
		defer close(arrivals)
		received <- receive(ctx, rpc, budget, arrivals)
	}()
	for batch := collect(arrivals); len(batch) > 0; batch = collect(arrivals) {
		if err := p.accept(ctx, batch); err != nil {
			return p.ended(err)
		}
		for i := range batch {
			budget.Release(batch[i].bytes)
		}
	}
	if err := p.ended(<-received); err != nil || p.reporter == nil {
		return err
	}
	return p.ended(p.awaitReports(ctx))
}

// ended is the status of the stream when its handler returns with err.
func (p *pushStream) ended(err error) error {
	if p.stopper == nil {
		return endedWith(err)
	}
	return p.stopper.ended(err)
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
		a := arrival{job: jobFromProto(m.GetJob()), report: m.GetReport()}
		a.pushes = m.GetJob() != nil || len(m.GetResume()) == 0
		if a.resume, err = positions(m.GetResume()); err != nil {
			return err
		}
		a.bytes = min(sizeOf(&a.job)+positionBytes*int64(len(a.resume)), maxPushBytes)
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

// accept stores a batch and acknowledges each of its jobs, in order; then it has reported
// what is wanted.
func (p *pushStream) accept(ctx context.Context, batch []arrival) error {
	acks, accepted := p.jobs.take(ctx, batch)
	p.jobs.announce(ctx, accepted)
	tell(p.jobs.dispatcher.opt.Events.JobsPushed, countPushed(acks))
	follow := make(map[spillway.JobID]int64)
	for i := range batch {
		maps.Copy(follow, batch[i].resume)
		ack := acks[i]
		if ack == nil {
			continue
		}
		if err := p.send(ack); err != nil {
			return err
		}
		known := ack.GetStatus() == jobsv1.PushStatus_PUSH_STATUS_ACCEPTED || ack.GetStatus() == jobsv1.PushStatus_PUSH_STATUS_DUPLICATE
		if _, resumed := follow[batch[i].job.ID]; batch[i].report && known && !resumed {
			follow[batch[i].job.ID] = 0
		}
	}
	if len(follow) == 0 {
		return nil
	}
	return p.report(ctx, follow)
}

// take stores the valid jobs of a batch. It returns an acknowledgement for each arrival
// that has a job, and the jobs that are new.
func (j *Jobs) take(ctx context.Context, batch []arrival) (acks []*jobsv1.PushResponse, accepted []spillway.Job) {
	acks = make([]*jobsv1.PushResponse, len(batch))
	valid := make([]spillway.Job, 0, len(batch))
	var at []int // of the valid ones in acks
	for i := range batch {
		if !batch[i].pushes {
			continue
		}
		job := &batch[i].job
		acks[i] = &jobsv1.PushResponse{JobId: head(string(job.ID), spillway.MaxJobIDBytes)}
		if err := job.Validate(); err != nil {
			acks[i].Status, acks[i].Detail = jobsv1.PushStatus_PUSH_STATUS_INVALID, head(err.Error(), 4*MaxDetailBytes)
			continue
		}
		valid = append(valid, *job)
		at = append(at, i)
	}
	if len(valid) == 0 {
		return acks, nil
	}
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
	return acks, accepted
}

// report has jobs followed from a transition on.
func (p *pushStream) report(ctx context.Context, after map[spillway.JobID]int64) error {
	if p.reporter == nil {
		stopper, err := newStopper(p.rpc.Context())
		if err != nil {
			return err
		}
		r, err := newReporter(p.jobs, p.send)
		if err != nil {
			return err
		}
		p.reporter, p.stopper = r, stopper
		p.reporting.Go(func() {
			defer func() {
				if panicked := recover(); panicked != nil {
					stopper.stop(panicStatus(p.jobs.dispatcher.opt.Events, panicked))
				}
			}()
			if err := r.run(ctx); ctx.Err() == nil {
				stopper.stop(endedWith(err))
			}
		})
	}
	return p.reporter.follow(after)
}

// awaitReports waits, when the caller has nothing more to push, until what it wants to
// know has come to its end.
func (p *pushStream) awaitReports(ctx context.Context) error {
	done := make(chan struct{})
	p.reporter.done(sync.OnceFunc(func() { close(done) }))
	select {
	case <-done:
		return nil
	case <-p.jobs.dispatcher.done:
		return errGoingAway
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endReports waits for the reporter: nothing may be sent when the handler has returned.
func (p *pushStream) endReports() {
	p.cancel()
	p.reporting.Wait()
	if p.reporter != nil {
		p.reporter.close()
	}
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
		if ack == nil {
			continue
		}
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
