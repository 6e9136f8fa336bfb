package jobrouter

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spillway-ci/spillway/gitlab/route"
)

// DiscoveryPath is where runners ask for their job router, below GitLab's URL.
const DiscoveryPath = "/api/v4/runners/router/discovery"

// Discovery answers runners that look for their job router. A runner keeps the answer
// for an hour: here we are, this is no token (403), or there is no router for it (501),
// whereupon it asks GitLab for jobs. A replica that drains says 503 instead. A runner
// asks five times within some seconds then, and may come to another replica; with 501,
// one rolling restart would keep it away from all of them for the hour.
type Discovery struct {
	tokens   *route.Tokens
	draining func() bool
	answer   []byte
}

// NewDiscovery names serverURL, which runners reach, to those whose token serves a
// pool, unless draining says that this replica is none now; nil = never.
func NewDiscovery(serverURL string, tokens *route.Tokens, draining func() bool) (*Discovery, error) {
	u, err := url.Parse(serverURL)
	switch {
	case err != nil || u.Host == "":
		return nil, fmt.Errorf("jobrouter: server URL %q: use a URL such as grpcs://router.example.com:443", serverURL)
	case u.Scheme != "grpc" && u.Scheme != "grpcs" && u.Scheme != "ws" && u.Scheme != "wss":
		return nil, fmt.Errorf("jobrouter: server URL %q: runners know the schemes grpc, grpcs, ws and wss", serverURL)
	}
	body, err := json.Marshal(map[string]string{"server_url": serverURL})
	if err != nil {
		return nil, fmt.Errorf("jobrouter: server URL: %w", err)
	}
	return &Discovery{tokens: tokens, draining: draining, answer: body}, nil
}

// ServeHTTP answers.
func (d *Discovery) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimSpace(r.Header.Get(headerToken))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if token == "" {
		say(w, http.StatusForbidden, `{"message":"403 Forbidden"}`)
		return
	}
	_, _, known := d.tokens.Lookup(token)
	switch {
	case !known || (r.Method != http.MethodGet && r.Method != http.MethodHead):
		say(w, http.StatusNotImplemented, `{"message":"501 Not Implemented"}`)
	case d.draining != nil && d.draining():
		say(w, http.StatusServiceUnavailable, `{"message":"503 Service Unavailable"}`)
	default:
		// The runner asks again after an hour: an idle connection would cost more than half
		// of what its waiting call does.
		w.Header().Set("Connection", "close")
		say(w, http.StatusOK, string(d.answer))
	}
}

func say(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // whoever asked is gone otherwise
}
