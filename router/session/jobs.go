package session

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spillway-ci/spillway"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	"github.com/spillway-ci/spillway/store"
)

// Limits of the JobService, each tested at its edge.
const (
	// MaxIDsPerCall bounds the jobs of one Cancel or Watch [jobs].
	MaxIDsPerCall = 1000
	// DefaultPage and MaxPage bound one page of List [records].
	DefaultPage = 100
	MaxPage     = 1000
	// maxPageBytes bounds the answer of one List [bytes]: what gRPC clients receive
	// without being told to take more. A page that is larger is cut in half.
	maxPageBytes = 3 << 20
)

// JobStore is where the JobService keeps jobs.
type JobStore interface {
	// Push answers for each job; an outcome of 0, beside an error, is not known.
	Push(ctx context.Context, jobs []spillway.Job) ([]store.PushOutcome, error)
	Cancel(ctx context.Context, ids []spillway.JobID, reason string) ([]store.CancelOutcome, error)
	GetMany(ctx context.Context, ids []spillway.JobID) ([]*spillway.JobRecord, error)
	List(ctx context.Context, states []spillway.JobState, limit int, token string) (records []spillway.JobRecord, next string, err error)
	// Quarantined lists the jobs in quarantine.
	Quarantined(ctx context.Context, limit int, token string) (records []spillway.JobRecord, next string, err error)
	// Retry puts a job that is in quarantine back into the queue; store.ErrNotQuarantined,
	// with its record, if it is not there.
	Retry(ctx context.Context, id spillway.JobID, reason string) (spillway.JobRecord, error)
}

// Jobs is the JobService: jobs come in, are watched, canceled and listed.
type Jobs struct {
	jobsv1.UnimplementedJobServiceServer

	dispatcher *Dispatcher
	store      JobStore
	changes    *changes
	onPushed   func()
}

// NewJobs serves jobs of s, and tells d of what changes. onPushed, if not nil, is
// called after jobs were accepted, so that the scaler need not wait for its tick;
// it must not block.
func NewJobs(d *Dispatcher, s JobStore, feed Feed, onPushed func()) *Jobs {
	if onPushed == nil {
		onPushed = func() {}
	}
	return &Jobs{dispatcher: d, store: s, changes: newChanges(feed), onPushed: onPushed}
}

// Cancel takes jobs back. Those that run here are ended at once, and those of another
// replica when it hears of it from the store.
func (j *Jobs) Cancel(ctx context.Context, req *jobsv1.CancelRequest) (*jobsv1.CancelResponse, error) {
	ids, err := jobIDs(req.GetJobIds())
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no job ids")
	}
	reason := head(req.GetReason(), MaxDetailBytes)
	outcomes, err := j.store.Cancel(ctx, ids, reason)
	if err != nil {
		return nil, storeStatus(err)
	}
	resp := &jobsv1.CancelResponse{Results: make([]*jobsv1.CancelResult, len(outcomes))}
	var canceled []spillway.JobID
	for i, o := range outcomes {
		resp.Results[i] = &jobsv1.CancelResult{JobId: string(o.ID), Found: o.Found, State: stateToProto[o.State]}
		if o.Found && o.State == spillway.Canceled {
			canceled = append(canceled, o.ID)
		}
	}
	if len(canceled) > 0 {
		j.dispatcher.put(ctx, event{kind: jobsCanceled, ended: canceled})
	}
	return resp, nil
}

// Get returns what is known of one job.
func (j *Jobs) Get(ctx context.Context, req *jobsv1.GetRequest) (*jobsv1.GetResponse, error) {
	ids, err := jobIDs([]string{req.GetJobId()})
	if err != nil {
		return nil, err
	}
	records, err := j.store.GetMany(ctx, ids)
	if err != nil {
		return nil, storeStatus(err)
	}
	if records[0] == nil {
		return nil, unknownJob(ids[0])
	}
	return &jobsv1.GetResponse{Record: j.record(records[0])}, nil
}

// Retry takes a job out of quarantine.
func (j *Jobs) Retry(ctx context.Context, req *jobsv1.RetryRequest) (*jobsv1.RetryResponse, error) {
	ids, err := jobIDs([]string{req.GetJobId()})
	if err != nil {
		return nil, err
	}
	reason := head(req.GetReason(), MaxDetailBytes)
	record, err := j.store.Retry(ctx, ids[0], reason)
	switch {
	case errors.Is(err, store.ErrUnknownJob):
		return nil, unknownJob(ids[0])
	case errors.Is(err, store.ErrNotQuarantined):
		return nil, status.Errorf(codes.FailedPrecondition, "job %s is not in quarantine but %s: only a job that lost max_attempts machines can be tried again; push others under a new id", ids[0], record.State)
	case err != nil:
		return nil, storeStatus(err)
	}
	tell(j.dispatcher.opt.Events.JobRetried, JobRetried{ID: ids[0], Attempt: record.Attempt, Reason: reason})
	j.announce(ctx, []spillway.Job{record.Job})
	return &jobsv1.RetryResponse{Record: j.record(&record)}, nil
}

// List returns one page, newest first. Outputs and transitions are left out: Get has
// them.
func (j *Jobs) List(ctx context.Context, req *jobsv1.ListRequest) (*jobsv1.ListResponse, error) {
	size := int(req.GetPageSize())
	if size < 0 || size > MaxPage {
		return nil, status.Errorf(codes.InvalidArgument, "page_size %d: use 1 to %d, or 0 for %d", size, MaxPage, DefaultPage)
	}
	if size == 0 {
		size = DefaultPage
	}
	states, err := jobStates(req)
	if err != nil {
		return nil, err
	}
	page := func() ([]spillway.JobRecord, string, error) {
		if req.GetQuarantined() {
			return j.store.Quarantined(ctx, size, req.GetPageToken())
		}
		return j.store.List(ctx, states, size, req.GetPageToken())
	}
	for {
		records, next, err := page()
		if err != nil {
			return nil, storeStatus(err)
		}
		resp := &jobsv1.ListResponse{NextPageToken: next, At: timestamppb.New(time.Now())}
		for i := range records {
			records[i].Result.Output, records[i].Transitions = nil, nil
			resp.Records = append(resp.Records, j.record(&records[i]))
		}
		if size == 1 || proto.Size(resp) <= maxPageBytes {
			return resp, nil
		}
		size /= 2
	}
}

func jobStates(req *jobsv1.ListRequest) ([]spillway.JobState, error) {
	var states []spillway.JobState
	if len(req.GetStates()) > len(stateFromProto) {
		return nil, status.Errorf(codes.InvalidArgument, "%d states, there are only %d", len(req.GetStates()), len(stateFromProto))
	}
	if req.GetQuarantined() && len(req.GetStates()) > 0 {
		return nil, status.Error(codes.InvalidArgument, "quarantined and states: a job in quarantine has failed; leave states out")
	}
	for _, wire := range req.GetStates() {
		state, ok := stateFromProto[wire]
		if !ok {
			return nil, status.Errorf(codes.InvalidArgument, "no such state: %s", wire)
		}
		states = append(states, state)
	}
	return states, nil
}

// jobIDs checks ids before they become keys of the store.
func jobIDs(names []string) ([]spillway.JobID, error) {
	if len(names) > MaxIDsPerCall {
		return nil, status.Errorf(codes.InvalidArgument, "%d job ids, at most %d are allowed", len(names), MaxIDsPerCall)
	}
	ids := make([]spillway.JobID, len(names))
	for i, name := range names {
		if name == "" || !shortText(name, spillway.MaxJobIDBytes) {
			return nil, status.Errorf(codes.InvalidArgument, "a job id must be 1 to %d bytes of printable ASCII without blanks", spillway.MaxJobIDBytes)
		}
		ids[i] = spillway.JobID(name)
	}
	return ids, nil
}

func unknownJob(id spillway.JobID) error {
	return status.Errorf(codes.NotFound, "no job %s: it was never pushed, or ended long ago", id)
}

// storeStatus is an error of the store as a caller may know it.
func storeStatus(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, store.ErrPageToken):
		return status.Error(codes.InvalidArgument, "page_token is not one that List gave out")
	case errors.Is(err, store.ErrUnknown):
		return status.Error(codes.Unavailable, "the store did not confirm in time: whether it was done is not known; try again")
	default:
		return status.Error(codes.Unavailable, "the store can't be reached now: try again")
	}
}
