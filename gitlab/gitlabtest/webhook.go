package gitlabtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// Limits of webhooks, as GitLab documents them for failing ones ("Webhooks:
// auto-disabled webhooks"): after some failures in a row nothing is delivered for a
// while, which doubles with each further failure; an answer of 4xx ends it for good.
const (
	hookFailures    = 4
	hookDisabledFor = time.Minute
	hookTimeout     = 10 * time.Second
	// maxHookQueue bounds the deliveries that wait for one receiver [events]; further
	// ones are lost, and the log says so.
	maxHookQueue = 200_000
)

// Delivery is how events reach a receiver. The zero value is once, in order and at
// once.
type Delivery struct {
	Repeat int           // deliveries of each event beyond the first
	Delay  time.Duration // of each event
	// Swap delivers every two events in the wrong order: the second first.
	Swap bool
	// Retries is how often a delivery is tried again that got no answer or 5xx.
	Retries int
}

// HookCall is one delivery.
type HookCall struct {
	At      time.Time
	EventID string
	JobID   int64
	State   string
	Status  int    // 0 = there was no answer
	Lost    string // why it was not sent; "" = it was
}

type hookEvent struct {
	id    string
	jobID int64
	state string
	body  []byte
}

// AddWebhook has Job Hooks sent to url, with secret as X-Gitlab-Token.
func (s *Server) AddWebhook(url, secret string, how ...Delivery) {
	h := &hook{url: url, secret: secret}
	if len(how) > 0 {
		h.how = how[0]
	}
	s.hooks.add(h)
}

// HookCalls returns the deliveries so far, the oldest first.
func (s *Server) HookCalls() []HookCall { return s.hooks.log() }

// deliverer sends events. Each hook has a goroutine of its own.
type deliverer struct {
	now    func() time.Time
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	client *http.Client
	mu     struct {
		sync.Mutex
		hooks []*hook
		calls []HookCall
	}
}

type hook struct {
	url, secret string
	how         Delivery
	events      chan hookEvent
	failures    int
	disabledTo  time.Time
	dead        bool
}

func newDeliverer(now func() time.Time) *deliverer {
	d := &deliverer{now: now, client: &http.Client{Timeout: hookTimeout}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

func (d *deliverer) close() {
	d.cancel()
	d.done.Wait()
	d.client.CloseIdleConnections()
}

func (d *deliverer) add(h *hook) {
	h.events = make(chan hookEvent, maxHookQueue)
	d.mu.Lock()
	d.mu.hooks = append(d.mu.hooks, h)
	d.mu.Unlock()
	d.done.Go(func() { d.run(h) })
}

func (d *deliverer) log() []HookCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]HookCall(nil), d.mu.calls...)
}

// any reports whether there is anybody to send to.
func (d *deliverer) any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.mu.hooks) > 0
}

// send hands an event to all hooks and never waits for one.
func (d *deliverer) send(e hookEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.mu.hooks {
		select {
		case h.events <- e:
		default:
			d.mu.calls = append(d.mu.calls, HookCall{EventID: e.id, JobID: e.jobID, State: e.state, Lost: "the queue is full"})
		}
	}
}

func (d *deliverer) run(h *hook) {
	var held *hookEvent
	for {
		select {
		case <-d.ctx.Done():
			return
		case e := <-h.events:
			switch {
			case h.how.Swap && held == nil:
				held = &e
				continue
			case h.how.Swap:
				d.deliver(h, e)
				e, held = *held, nil
			}
			d.deliver(h, e)
		}
	}
}

func (d *deliverer) deliver(h *hook, e hookEvent) {
	pause(d.ctx, h.how.Delay)
	for range 1 + h.how.Repeat {
		if lost := h.silent(d.now()); lost != "" {
			d.record(e, 0, lost)
			continue
		}
		var status int
		for range 1 + h.how.Retries {
			status = d.post(h, e)
			d.record(e, status, "")
			if status > 0 && status < 500 || d.ctx.Err() != nil {
				break
			}
		}
		h.learn(status, d.now())
	}
}

// silent is why nothing is sent to a receiver now.
func (h *hook) silent(now time.Time) string {
	switch {
	case h.dead:
		return "disabled for good"
	case now.Before(h.disabledTo):
		return "disabled for a while"
	}
	return ""
}

func (h *hook) learn(status int, now time.Time) {
	if status >= 200 && status < 300 {
		h.failures = 0
		return
	}
	h.failures++
	if h.failures < hookFailures {
		return
	}
	if status >= 400 && status < 500 {
		h.dead = true
	}
	h.disabledTo = now.Add(hookDisabledFor << min(h.failures-hookFailures, 10))
}

func (d *deliverer) record(e hookEvent, status int, lost string) {
	at := d.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.calls = append(d.mu.calls, HookCall{At: at, EventID: e.id, JobID: e.jobID, State: e.state, Status: status, Lost: lost})
}

func (d *deliverer) post(h *hook, e hookEvent) (status int) {
	request, err := http.NewRequestWithContext(d.ctx, http.MethodPost, h.url, bytes.NewReader(e.body))
	if err != nil {
		return 0
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "GitLab/19.4.0", "X-Gitlab-Event": "Job Hook",
		"X-Gitlab-Token": h.secret, "X-Gitlab-Event-UUID": e.id, "Idempotency-Key": e.id, "X-Gitlab-Instance": "http://gitlab.invalid",
	} {
		request.Header.Set(name, value)
	}
	response, err := d.client.Do(request)
	if err != nil {
		return 0
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, MaxBodyBytes))
	return response.StatusCode
}

// jobHook is the event of a job as it is now: lib/gitlab/data_builder/build.rb. The
// lock is held.
func (s *Server) jobHook(j *job) hookEvent {
	queued := s.clock().Sub(j.queuedAt)
	if !j.startedAt.IsZero() {
		queued = j.startedAt.Sub(j.queuedAt)
	}
	var of any
	if j.runner != nil {
		of = map[string]any{
			"id": j.runner.id, "description": j.runner.spec.Description, "runner_type": string(j.runner.spec.Type) + "_type",
			"active": !j.runner.paused, "is_shared": j.runner.spec.Type == "instance", "tags": append([]string{}, j.runner.spec.Tags...),
		}
	}
	event := map[string]any{
		"object_kind": "build", "ref": j.Ref, "tag": false, "build_id": j.id, "build_name": j.Name,
		"build_stage": j.Stage, "build_status": j.status, "build_queued_duration": queued.Seconds(),
		"build_duration": nil, "build_allow_failure": false, "build_failure_reason": orUnknown(j.failure),
		"pipeline_id": j.pipeline.id, "runner": of, "project_id": j.project.id, "project_name": j.project.path,
		"retries_count": j.retries, "commit": map[string]any{"id": j.pipeline.id, "status": j.pipeline.status()},
	}
	for name, at := range map[string]time.Time{"created": j.createdAt, "started": j.startedAt, "finished": j.finishedAt} {
		event["build_"+name+"_at"], event["build_"+name+"_at_iso"] = nil, nil
		if !at.IsZero() {
			event["build_"+name+"_at"] = at.UTC().Format("2006-01-02 15:04:05 UTC")
			event["build_"+name+"_at_iso"] = at.UTC().Format(time.RFC3339)
		}
	}
	body, err := json.Marshal(event)
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return hookEvent{id: rand.Text(), jobID: j.id, state: j.status, body: body}
}

func orUnknown(reason string) string {
	if reason == "" {
		return "unknown_failure"
	}
	return reason
}
