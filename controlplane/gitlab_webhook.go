package controlplane

import (
	"log/slog"
	"net/http"
	"sync"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/gitlab/webhook"
)

// lateHook receives webhooks once there is a secret for them. Until then GitLab is told
// to repeat them: the lists tell of the same jobs, only later, so that a missing secret
// is no reason to scale nothing.
type lateHook struct {
	o   webhook.Options
	log *slog.Logger

	mu struct {
		sync.Mutex
		hook http.Handler // nil: there is no secret yet
	}
}

func (g *gitLab) receiver(secret config.SecretSource) http.Handler {
	l := &lateHook{o: webhook.Options{Secret: reveal(secret), Heard: g.heard}, log: g.c.log}
	if _, err := l.get(); err != nil {
		l.log.Error("webhooks are refused until their secret is there", "error", err)
	}
	return l
}

func (l *lateHook) get() (http.Handler, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.hook != nil {
		return l.mu.hook, nil
	}
	hook, err := webhook.New(l.o)
	if err != nil {
		return nil, err
	}
	l.mu.hook = hook
	return hook, nil
}

// ServeHTTP implements http.Handler.
func (l *lateHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hook, err := l.get()
	if err != nil { // said at the start
		http.Error(w, "webhooks have no secret yet", http.StatusServiceUnavailable)
		return
	}
	hook.ServeHTTP(w, r)
}
