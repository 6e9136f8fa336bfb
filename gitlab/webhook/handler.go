package webhook

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Limits on one request.
const (
	// MaxBodyBytes bounds a hook [bytes]. A job hook has a few KiB; the commit message in
	// it is what can grow.
	MaxBodyBytes = 1 << 20
	// HeardTimeout bounds passing an event on [time]: GitLab gives a hook up after 10 s
	// and counts it as failed, and turns a hook off that fails often
	// (doc/user/project/integrations/webhooks.md).
	HeardTimeout = 5 * time.Second
	// maxKeyBytes bounds a delivery's key [bytes]; GitLab's are UUIDs.
	maxKeyBytes = 128
	// minSecretBytes is the shortest secret [bytes]: a shorter one can be guessed over the
	// network.
	minSecretBytes = 8
)

// The headers of a hook.
const (
	headerToken       = "X-Gitlab-Token"
	headerEvent       = "X-Gitlab-Event"
	headerIdempotency = "Idempotency-Key" // the same for every try of one hook
	headerUUID        = "X-Gitlab-Event-UUID"
)

// jobHook is the only event that is heard.
const jobHook = "Job Hook"

// Options are what a receiver is made of.
type Options struct {
	// Secret gives the secret token that the hook was given in GitLab, anew for each
	// request, so that it can be changed under it.
	Secret func() (string, error)
	// Heard is told each event, from any goroutine. Its error means that the event is not
	// kept: GitLab is told so.
	Heard func(ctx context.Context, e Event) error
	Now   func() time.Time // nil = time.Now
}

// ErrNoSecret is why there is no receiver without a secret: anybody who reaches it could
// invent jobs.
var ErrNoSecret = errors.New("gitlab.webhook.secret: a webhook needs a secret of at least 8 characters, the same as the hook's secret token in GitLab")

// New makes a receiver; ErrNoSecret where the secret is missing or too short.
func New(o Options) (http.Handler, error) {
	if o.Secret == nil {
		return nil, ErrNoSecret
	}
	if o.Heard == nil {
		return nil, errors.New("webhook: Heard is missing")
	}
	if _, err := secret(o.Secret); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &handler{secret: o.Secret, heard: o.Heard, now: o.Now, memory: newMemory(MaxRemembered)}, nil
}

func secret(read func() (string, error)) (string, error) {
	s, err := read()
	if err != nil {
		return "", fmt.Errorf("gitlab.webhook.secret can't be read: %w", err)
	}
	if s = strings.TrimSpace(s); len(s) < minSecretBytes {
		return "", ErrNoSecret
	}
	return s, nil
}

type handler struct {
	secret func() (string, error)
	heard  func(context.Context, Event) error
	now    func() time.Time
	memory *memory
}

// ServeHTTP answers 200 to what was passed on, was known or is no business of ours; 401
// to a wrong secret, 400 to a body that is no job hook, 413 to one that is too large, 405
// to anything but POST, and 503 to what could not be passed on.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
		return
	}
	want, err := secret(h.secret)
	if err != nil { // the file went away: nobody can be let in, and GitLab shall try again
		http.Error(w, "the secret can't be read", http.StatusServiceUnavailable)
		return
	}
	if !same(r.Header.Get(headerToken), want) {
		http.Error(w, "wrong "+headerToken, http.StatusUnauthorized)
		return
	}
	if r.Header.Get(headerEvent) != jobHook {
		answer(w, "ignored: only job events are heard")
		return
	}
	h.serveJob(w, r)
}

func (h *handler) serveJob(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		http.Error(w, "the body was cut off", http.StatusBadRequest)
		return
	}
	now := h.now()
	e, err := parse(body, now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	keys := deliveryKeys(r.Header, e)
	if h.memory.known(keys, e, now) {
		answer(w, "known")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), HeardTimeout)
	defer cancel()
	if err := h.heard(ctx, e); err != nil {
		// The reason is for our own log, which the one who is told writes.
		http.Error(w, "it could not be kept: send it again", http.StatusServiceUnavailable)
		return
	}
	h.memory.heard(keys, e, now)
	answer(w, "heard")
}

func answer(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, text+"\n") // GitLab doesn't wait for it
}

// same compares in a time that tells nothing of where two texts differ, nor of their
// lengths.
func same(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// deliveryKeys are what a repeated hook has in common with the first. Idempotency-Key is
// made for that; older versions lack it. The event's UUID alone would be too much, since
// hooks that one hook sets off share it.
func deliveryKeys(h http.Header, e Event) []string {
	fact := fmt.Sprintf("%d %s ", e.JobID, e.Status)
	var keys []string
	if k := h.Get(headerIdempotency); k != "" && len(k) <= maxKeyBytes {
		keys = append(keys, "key "+k)
	}
	if k := h.Get(headerUUID); k != "" && len(k) <= maxKeyBytes {
		keys = append(keys, "uuid "+k+" "+fact)
	}
	if s := stage(e.Status); s == runs || s == over {
		keys = append(keys, "fact "+fact+e.At.Format(time.RFC3339Nano))
	}
	return keys
}
