package controlplane

import (
	"net/http"

	"github.com/spillway-ci/spillway/gitlab/jobrouter"
)

// The paths of listen.gitlab, besides those of GitLab itself.
const (
	WebhookPath = "/webhooks/gitlab"
	TunnelPath  = "/runners/router"
	HealthPath  = "/healthz"
)

// ServeHTTP serves listen.gitlab. Nothing that cleans paths may stand in front of the
// proxy, so this is no http.ServeMux.
func (g *gitLab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == HealthPath && g.desk != nil && g.desk.Draining():
		http.Error(w, "on its way out: ask another replica", http.StatusServiceUnavailable)
	case path == HealthPath:
		w.WriteHeader(http.StatusOK)
	case path == WebhookPath && g.hook != nil:
		g.hook.ServeHTTP(w, r)
	case path == TunnelPath && g.tunnel != nil:
		g.tunnel.ServeHTTP(w, r)
	case path == jobrouter.DiscoveryPath && g.discovery != nil:
		g.discovery.ServeHTTP(w, r)
	case g.proxy != nil:
		g.proxy.ServeHTTP(w, r)
	default:
		http.NotFound(w, r)
	}
}
