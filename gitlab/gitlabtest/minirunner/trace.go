package minirunner

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits of a trace.
const (
	maxPiece      = 1 << 20 // bytes of one PATCH (DefaultTracePatchLimit)
	maxTrace      = 4 << 20 // bytes; what a script writes beyond is dropped (DefaultTraceOutputLimit)
	maxFinalTries = 10      // to report the end (DefaultFinalUpdateRetryLimit)
	maxReplies    = 100     // of 202 and 412 to one report of the end
	maxInterval   = 15 * time.Minute
)

// verdict is what GitLab says of a job when something is reported of it.
type verdict string

const (
	ok        verdict = "ok"
	later     verdict = "later"       // accepted, ask again
	resend    verdict = "resend"      // the trace is wrong there
	tryAgain  verdict = "try again"   // it went wrong
	giveUp    verdict = "give up"     // the job is not ours any more
	cancelled verdict = "cancelled"   // stop it and say that it is canceled
	elsewhere verdict = "other place" // the trace is at another offset there
)

// trace is the log of one job, and the way of all that is reported of it:
// network/trace.go.
type trace struct {
	r   *Runner
	job *payload
	mu  struct {
		sync.Mutex
		text    []byte
		sent    int
		touched time.Time
		every   time.Duration // as GitLab said; 0 = it didn't
	}
}

// Write implements [io.Writer].
func (t *trace) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	room := max(maxTrace-len(t.mu.text), 0)
	t.mu.text = append(t.mu.text, p[:min(len(p), room)]...)
	return len(p), nil
}

func (t *trace) unsent() (piece []byte, from int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from = min(t.mu.sent, len(t.mu.text))
	return slices.Clone(t.mu.text[from:min(from+maxPiece, len(t.mu.text))]), from
}

func (t *trace) sentTo(offset int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.sent, t.mu.touched = offset, time.Now()
}

// follow sends what the job writes until done, and says by stop that the job has to
// end: with cancelled or giveUp.
func (t *trace) follow(ctx context.Context, done <-chan struct{}, stop func(verdict)) {
	for {
		timer := time.NewTimer(t.interval())
		select {
		case <-timer.C:
		case <-done:
			timer.Stop()
			return
		}
		if v := t.step(ctx); v == giveUp || v == cancelled {
			stop(v)
		}
	}
}

// interval is how long to wait before the next piece, which GitLab may say.
func (t *trace) interval() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.every > 0 {
		return t.mu.every
	}
	return t.r.o.Times.Update
}

func (t *trace) heed(got *answer) {
	seconds, err := strconv.Atoi(got.header.Get("X-GitLab-Trace-Update-Interval"))
	if err != nil || seconds <= 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.every = min(time.Duration(seconds)*time.Second, maxInterval)
}

// step sends one piece, or tells that the job still runs when there was none for
// long.
func (t *trace) step(ctx context.Context) verdict {
	if v := t.patch(ctx); v != ok {
		return v
	}
	t.mu.Lock()
	quiet := time.Since(t.mu.touched) > t.r.o.Times.Touch
	t.mu.Unlock()
	if !quiet {
		return ok
	}
	v := t.put(ctx, update{State: "running"})
	if v == ok {
		t.mu.Lock()
		t.mu.touched = time.Now()
		t.mu.Unlock()
	}
	return v
}

// patch sends the next piece.
func (t *trace) patch(ctx context.Context) verdict {
	piece, from := t.unsent()
	if len(piece) == 0 {
		return ok
	}
	header := http.Header{
		"Job-Token": {t.job.Token}, "Content-Type": {"text/plain"}, "Content-Range": {fmt.Sprintf("%d-%d", from, from+len(piece)-1)},
	}
	got, err := t.r.api.call(ctx, "PATCH", fmt.Sprintf("jobs/%d/trace?debug_trace=false", t.job.ID), header, piece)
	if err != nil {
		return tryAgain
	}
	t.heed(got)
	switch {
	case lost(got), got.status == http.StatusNotFound:
		return giveUp
	case got.status == http.StatusAccepted:
		t.sentTo(from + len(piece))
	case got.status == http.StatusRequestedRangeNotSatisfiable:
		_, end, _ := strings.Cut(got.header.Get("Range"), "-")
		offset, _ := strconv.Atoi(end) // without one: from the beginning
		t.sentTo(offset)
		return elsewhere
	default:
		return tryAgain
	}
	if got.header.Get("Job-Status") == "canceling" {
		return cancelled
	}
	return ok
}

// lost reports whether GitLab has ended the job.
func lost(got *answer) bool {
	state := got.header.Get("Job-Status")
	return got.status == http.StatusForbidden || state == "canceled" || state == "failed"
}

// update is the body of PUT /jobs/:id.
type update struct {
	Info          info   `json:"info"`
	Token         string `json:"token"`
	State         string `json:"state"`
	FailureReason string `json:"failure_reason,omitempty"`
	ExitCode      int    `json:"exit_code,omitempty"`
	Output        output `json:"output"`
}

type output struct {
	Checksum string `json:"checksum,omitempty"`
	Bytesize int    `json:"bytesize,omitempty"`
}

func (t *trace) put(ctx context.Context, u update) verdict {
	t.mu.Lock()
	if len(t.mu.text) > 0 || u.State != "running" { // the first one says nothing of a trace
		u.Output = output{Checksum: fmt.Sprintf("crc32:%08x", crc32.ChecksumIEEE(t.mu.text)), Bytesize: len(t.mu.text)}
	}
	t.mu.Unlock()
	u.Info, u.Token = t.r.o.info(), t.job.Token
	body, err := json.Marshal(u)
	if err != nil {
		return giveUp
	}
	header := http.Header{"Job-Token": {t.job.Token}, "Content-Type": {"application/json"}}
	got, err := t.r.api.call(ctx, http.MethodPut, fmt.Sprintf("jobs/%d", t.job.ID), header, body)
	if err != nil {
		return tryAgain
	}
	t.heed(got)
	switch {
	case lost(got), got.status == http.StatusNotFound:
		return giveUp
	case got.header.Get("Job-Status") == "canceling" && got.status == http.StatusOK:
		return cancelled
	case got.status == http.StatusOK:
		return ok
	case got.status == http.StatusAccepted:
		return later
	case got.status == http.StatusPreconditionFailed:
		t.sentTo(0)
		return resend
	default:
		return tryAgain
	}
}

// finish sends the rest of the trace and reports the end, and reports whether
// GitLab has it or has given the job up.
func (t *trace) finish(ctx context.Context, u update) bool {
	wait := t.r.o.Times.FinalRetry
	for range maxFinalTries {
		if t.tryFinish(ctx, u) {
			return true
		}
		if !sleep(ctx, wait) {
			return false
		}
		wait = min(2*wait, t.r.o.Times.RetryMax)
	}
	return false
}

func (t *trace) tryFinish(ctx context.Context, u update) bool {
	for range maxReplies {
		switch t.sendAll(ctx) {
		case giveUp:
			return true
		case tryAgain:
			return false
		default:
		}
		switch t.put(ctx, u) {
		case ok, giveUp, cancelled:
			return true
		case tryAgain:
			return false
		default:
		}
		if !sleep(ctx, t.r.o.Times.Update) {
			return false
		}
	}
	return false
}

func (t *trace) sendAll(ctx context.Context) verdict {
	for {
		if piece, _ := t.unsent(); len(piece) == 0 {
			return ok
		}
		if v := t.patch(ctx); v == giveUp || v == tryAgain {
			return v
		}
	}
}
