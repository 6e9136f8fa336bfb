package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// A watch that breaks off is begun again: first soon, then less often, and not
// for ever.
const (
	rewatchFirst = 100 * time.Millisecond
	rewatchMost  = 5 * time.Second
	rewatchFor   = time.Minute
)

// wait follows the jobs until all have ended, and shows how it goes on stderr.
func (a *app) wait(ctx context.Context, c client, s *submission, limit time.Duration) error {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	records := make(chan *typesv1.JobRecord)
	g, watching := errgroup.WithContext(ctx)
	for ids := range slices.Chunk(s.ids(), maxIDs) {
		g.Go(func() error { return watch(watching, c, ids, records) })
	}
	done := make(chan error, 1)
	go func() {
		done <- g.Wait()
		close(records)
	}()
	p := newProgress(a.stderr, len(s.ids()))
	for r := range records {
		p.show(r, s.update(r))
	}
	p.end()
	err := <-done
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return failedf("%d of %d jobs had not ended within %s; they go on", p.total-p.ended, p.total, limit)
	case ctx.Err() != nil:
		return failedf("interrupted: %d of %d jobs had not ended; they go on", p.total-p.ended, p.total)
	default:
		return err
	}
}

// watch passes on the changes of jobs until all of them have ended.
func watch(ctx context.Context, c client, ids []string, records chan<- *typesv1.JobRecord) error {
	left := map[string]bool{}
	for _, id := range ids {
		left[id] = true
	}
	pause, broke := rewatchFirst, time.Time{}
	for {
		heard, err := watchOnce(ctx, c, left, records)
		switch {
		case len(left) == 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case pastDeadline(ctx, err):
			<-ctx.Done()
			return ctx.Err()
		case !worthAnotherTry(err):
			return err
		case heard || broke.IsZero():
			pause, broke = rewatchFirst, time.Now()
		case time.Since(broke) > rewatchFor:
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, rewatchMost)
	}
}

// watchOnce follows one stream to its end. It takes jobs that have ended out of
// left, and reports whether anything was heard.
func watchOnce(ctx context.Context, c client, left map[string]bool, records chan<- *typesv1.JobRecord) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ids []string
	for id := range left {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	stream, err := c.jobs.Watch(ctx, &jobsv1.WatchRequest{JobIds: ids, UntilTerminal: true})
	if err != nil {
		return false, err
	}
	for len(left) > 0 {
		resp, err := stream.Recv()
		if err != nil {
			return heard, err
		}
		heard = true
		r := resp.GetRecord()
		if terminal(r) {
			delete(left, r.GetJob().GetId())
		}
		select {
		case records <- r:
		case <-ctx.Done():
			return heard, ctx.Err()
		}
	}
	return heard, nil
}

// pastDeadline: the server, which was told of our time limit, says that it is over. Its
// clock may be a moment ahead of ours.
func pastDeadline(ctx context.Context, err error) bool {
	_, limited := ctx.Deadline()
	return limited && status.Code(err) == codes.DeadlineExceeded
}

// worthAnotherTry: the stream ended early, the control plane restarts, or it
// found us slow.
func worthAnotherTry(err error) bool {
	if errors.Is(err, io.EOF) {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return true
	default:
		return false
	}
}

// progress shows a line for each job that ends or, on a terminal, one line that
// changes.
type progress struct {
	w            io.Writer
	terminal     bool
	total, ended int
	states       map[string]typesv1.JobState
}

func newProgress(w io.Writer, total int) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd())), total: total, states: map[string]typesv1.JobState{}}
}

func (p *progress) show(r *typesv1.JobRecord, ended bool) {
	p.states[r.GetJob().GetId()] = r.GetState()
	if ended {
		p.ended++
	}
	switch {
	case p.terminal:
		running := 0
		for _, s := range p.states {
			if s == typesv1.JobState_JOB_STATE_RUNNING {
				running++
			}
		}
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%d of %d ended, %d running", p.ended, p.total, running)
	case ended:
		_, _ = fmt.Fprintf(p.w, "%d/%d %s %s in %s (%s)\n", p.ended, p.total, printable(r.GetJob().GetId()), stateName(r.GetState()), printable(dash(r.GetPool())), printable(result(r)))
	}
}

func (p *progress) end() {
	if p.terminal {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
}
