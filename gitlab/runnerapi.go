package gitlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Limits on the calls of a runner and of a job.
const (
	// MaxRequestBytes bounds what a runner asks for a job with [bytes], as GitLab does.
	MaxRequestBytes = 32 << 10
	// MaxPayloadBytes bounds a job as GitLab hands it out [bytes]: it has to go through a
	// gRPC message of 4 MiB.
	MaxPayloadBytes = 4<<20 - 4<<10
	// MaxTraceBytes bounds the text that FailJob leaves in a job's log [bytes].
	MaxTraceBytes = 16 << 10
	// requestTimeout bounds a job request [time]; GitLab holds one for 50 s where long
	// polling is on (doc/ci/runners/long_polling.md).
	requestTimeout = 2 * time.Minute
	// updateTries is how often a job's end is reported while GitLab answers 202 [times].
	updateTries = 5
)

// JobAnswer is GitLab's answer to a job request, whatever it was. It prints itself
// without its body, which holds the job's token and variables.
type JobAnswer struct {
	Status     int
	Body       []byte // of a 201: the job, unchanged
	Cut        bool   // the job is larger than MaxPayloadBytes: Body is its beginning
	LastUpdate string // X-GitLab-Last-Update, to be sent as last_update the next time
	RetryAfter time.Duration
	RequestID  string
}

// Format masks the body under every verb.
func (a JobAnswer) Format(f fmt.State, _ rune) { fmt.Fprint(f, a.masked()) }

// LogValue masks the body in logs.
func (a JobAnswer) LogValue() slog.Value { return slog.StringValue(a.masked()) }

// MarshalJSON masks the body.
func (a JobAnswer) MarshalJSON() ([]byte, error) { return json.Marshal(a.masked()) }

func (a JobAnswer) masked() string {
	return fmt.Sprintf("status %d, %d bytes", a.Status, len(a.Body))
}

// RequestJob asks GitLab for a job as a runner does, POST /api/v4/jobs/request, with the
// body and the headers as they are. Whatever GitLab answers is an answer: an error
// means that there was none, or one that can't be handed on. A 201 is our job from then
// on, for two minutes if the runner commits in two phases.
func (c *Client) RequestJob(ctx context.Context, body []byte, header http.Header) (JobAnswer, error) {
	k := call{what: "gitlab: request a job", method: http.MethodPost, path: "api/v4/jobs/request", body: body, header: header.Clone(), limit: MaxPayloadBytes}
	if len(body) > MaxRequestBytes {
		return JobAnswer{}, fmt.Errorf("%s: the request has %d bytes, at most %d are allowed", k.what, len(body), MaxRequestBytes)
	}
	k.secrets = header.Values("Runner-Token")
	var got JobAnswer
	err := c.send(ctx, k, requestTimeout, func(a answer) error {
		got = JobAnswer{Status: a.status, LastUpdate: a.header.Get("X-GitLab-Last-Update"), RequestID: a.header.Get("X-Request-Id")}
		after, told := retryAfter(a.header, c.now())
		if told || a.status == http.StatusTooManyRequests {
			got.RetryAfter = after
		}
		if a.status != http.StatusCreated {
			return nil
		}
		if err := a.isJSON(); err != nil {
			return err
		}
		var err error
		got.Body, err = io.ReadAll(a.body)
		if got.Cut = a.body.left < 0; got.Cut {
			return nil
		}
		return err
	})
	if err != nil {
		return JobAnswer{}, err
	}
	return got, nil
}

// KeepPending tells GitLab that a job that it gave us is being prepared, so that it waits
// for another two minutes before it gives the job to somebody else:
// app/services/ci/update_build_state_service.rb, handle_runner_ack_workflow. ErrConflict:
// the job runs already; ErrForbidden, ErrNotFound: it is over, or no longer ours.
func (c *Client) KeepPending(ctx context.Context, jobID int64, jobToken string) error {
	k := call{what: fmt.Sprintf("gitlab: keep job %d", jobID)}
	return c.update(ctx, k, jobID, jobToken, update{State: "pending"})
}

// FailJob ends a job that we were given and that nobody is to run: trace goes into its
// log, reason is one of GitLab's failure reasons. GitLab takes no log and no end of a
// job that waits for its runner's word, so the job is declared running first.
func (c *Client) FailJob(ctx context.Context, jobID int64, jobToken, reason, trace string) error {
	k := call{what: fmt.Sprintf("gitlab: fail job %d", jobID)}
	if err := c.update(ctx, k, jobID, jobToken, update{State: "running"}); err != nil {
		return err
	}
	// The job has to end even if its log can't be written: else it hangs until its
	// time limit. So both are tried and both may be reported.
	traced := c.appendTrace(ctx, k, jobID, jobToken, trace)
	failed := c.update(ctx, k, jobID, jobToken, update{State: "failed", FailureReason: reason})
	return errors.Join(failed, traced)
}

// update is the body of PUT /api/v4/jobs/:id.
type update struct {
	Token         string `json:"token"`
	State         string `json:"state"`
	FailureReason string `json:"failure_reason,omitempty"`
}

func (c *Client) update(ctx context.Context, k call, jobID int64, jobToken string, u update) error {
	token, err := checkToken(jobToken)
	if err != nil {
		return fmt.Errorf("%s: %w", k.what, err)
	}
	u.Token = token
	body, err := json.Marshal(u)
	if err != nil {
		return fmt.Errorf("%s: %w", k.what, err)
	}
	k.method, k.path, k.body = http.MethodPut, fmt.Sprintf("api/v4/jobs/%d", jobID), body
	k.header = http.Header{"Job-Token": {token}}
	k.secrets = []string{token}
	for try := 1; ; try++ {
		accepted := false
		err := c.send(ctx, k, callTimeout, func(a answer) error {
			accepted = a.status == http.StatusAccepted // 202: GitLab still works on the log, ask again
			if a.status == http.StatusOK || accepted {
				return nil
			}
			return c.jobRefused(k, a)
		})
		switch {
		case err != nil || !accepted:
			return err
		case try == updateTries:
			return fmt.Errorf("%s: %w: it has answered %d times that it is not ready", k.what, ErrUnavailable, try)
		case !c.wait(ctx.Done(), time.Second):
			return fmt.Errorf("%s: %w", k.what, cause(ctx))
		}
	}
}

// appendTrace writes the beginning of a job's log: PATCH /api/v4/jobs/:id/trace with an
// inclusive range.
func (c *Client) appendTrace(ctx context.Context, k call, jobID int64, jobToken, trace string) error {
	if len(trace) > MaxTraceBytes {
		trace = strings.ToValidUTF8(trace[:MaxTraceBytes], "")
	}
	if trace == "" {
		return nil
	}
	token := strings.TrimSpace(jobToken)
	k.method, k.path, k.body = http.MethodPatch, fmt.Sprintf("api/v4/jobs/%d/trace", jobID), []byte(trace)
	k.header = http.Header{
		"Job-Token": {token}, "Content-Type": {"text/plain"}, "Content-Range": {"0-" + strconv.Itoa(len(trace)-1)},
	}
	k.secrets = []string{token}
	return c.send(ctx, k, callTimeout, func(a answer) error {
		if a.status == http.StatusAccepted || a.status == http.StatusOK {
			return nil
		}
		return c.jobRefused(k, a)
	})
}

// jobRefused is the error for an answer to a call with a job's token.
func (c *Client) jobRefused(k call, a answer) error {
	switch a.status {
	case http.StatusForbidden, http.StatusUnauthorized:
		return fmt.Errorf("%w: the job's token is not valid any more: the job is over, or was given to somebody else", ErrForbidden)
	case http.StatusConflict:
		return ErrConflict
	case http.StatusBadRequest:
		message, _ := a.message()
		return fmt.Errorf("%w: GitLab: %s", ErrConflict, message)
	case http.StatusTooManyRequests:
		after, _ := retryAfter(a.header, c.now())
		return &Limited{RetryAfter: after}
	default:
		return c.refused(k, a)
	}
}

// Verify asks GitLab which runner a runner token is: POST /api/v4/runners/verify. With a
// system id it also makes that machine known. ErrUnauthorized: no runner has the token.
func (c *Client) Verify(ctx context.Context, runnerToken, systemID string) (int64, error) {
	k := call{what: "gitlab: verify a runner token", method: http.MethodPost, path: "api/v4/runners/verify"}
	token, err := checkToken(runnerToken)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", k.what, err)
	}
	body := map[string]string{"token": token}
	if systemID != "" {
		body["system_id"] = systemID
	}
	if k.body, err = json.Marshal(body); err != nil {
		return 0, fmt.Errorf("%s: %w", k.what, err)
	}
	k.secrets = []string{token}
	var runner hasID
	err = c.send(ctx, k, callTimeout, func(a answer) error {
		switch a.status {
		case http.StatusOK, http.StatusCreated:
		case http.StatusForbidden, http.StatusUnauthorized:
			return fmt.Errorf("%w: no runner has it (runner token)", ErrUnauthorized)
		case http.StatusTooManyRequests:
			after, _ := retryAfter(a.header, c.now())
			return &Limited{RetryAfter: after}
		default:
			return c.refused(k, a)
		}
		if err := a.isJSON(); err != nil {
			return err
		}
		if err := a.decode(&runner); err != nil {
			return err
		}
		if runner.ID <= 0 {
			return fmt.Errorf("%w: the runner has no id", ErrProtocol)
		}
		return nil
	})
	return runner.ID, err
}
