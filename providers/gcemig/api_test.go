package gcemig_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/providers/gcemig"
)

// api speaks as much of the Compute REST API as this provider uses.
type api struct {
	t         *testing.T
	scope     string                      // "zones/z" or "regions/r"
	groups    []map[string]any            // of the scope
	instances map[string][]map[string]any // by group
	vms       []map[string]any            // of zone europe-west1-b
	filters   []string                    // of the lists of those
	pageSize  int
	endless   bool             // every page has a next one
	fail      http.HandlerFunc // answers instead, from call failFrom on
	failFrom  int              // 1 = the first
	calls     atomic.Int64
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if call := int(a.calls.Add(1)); a.fail != nil && call >= a.failFrom {
		a.fail(w, r)
		return
	}
	base := "/compute/v1/projects/p/" + a.scope + "/instanceGroupManagers"
	if r.URL.Path == base && r.Method == http.MethodGet {
		a.page(w, r, "items", a.groups)
		return
	}
	if r.URL.Path == "/compute/v1/projects/p/zones/europe-west1-b/instances" {
		a.filters = append(a.filters, r.URL.Query().Get("filter"))
		a.page(w, r, "items", a.vms)
		return
	}
	for name, list := range a.instances {
		if r.URL.Path == base+"/"+name+"/listManagedInstances" && r.Method == http.MethodPost {
			a.page(w, r, "managedInstances", list)
			return
		}
	}
	failure(http.StatusNotFound, "notFound")(w, r)
}

func (a *api) page(w http.ResponseWriter, r *http.Request, field string, all []map[string]any) {
	from, _ := strconv.Atoi(r.URL.Query().Get("pageToken"))
	to := min(from+a.pageSize, len(all))
	answer := map[string]any{field: all[from:to]}
	if to < len(all) || a.endless {
		answer["nextPageToken"] = strconv.Itoa(to)
	}
	assert.NoError(a.t, json.NewEncoder(w).Encode(answer))
}

func withDeadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// failure answers as Google's APIs do.
func failure(status int, reason string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
			"code": status, "message": "said by the test", "errors": []any{map[string]any{"reason": reason, "message": "said by the test"}},
		}})
	}
}

func group(name string, target int, stable bool) map[string]any {
	return map[string]any{"name": name, "targetSize": target, "status": map[string]any{"isStable": stable}}
}

// vm is a managed instance; id 0 is one that has no VM.
func vm(id int, name, action, own string) map[string]any {
	m := map[string]any{"name": name, "instance": instanceURL(name), "currentAction": action, "instanceStatus": own}
	if id != 0 {
		m["id"] = strconv.Itoa(id)
	}
	return m
}

func instanceURL(name string) string {
	return "https://www.googleapis.com/compute/v1/projects/p/zones/europe-west1-b/instances/" + name
}

// serve starts the API for a zone and a provider that asks it for the named groups.
func serve(t *testing.T, a *api, names ...string) *gcemig.Provider {
	t.Helper()
	a.scope = "zones/z"
	return serveScope(t, a, map[string]any{"zone": "z"}, names)
}

func serveScope(t *testing.T, a *api, config map[string]any, names []string) *gcemig.Provider {
	t.Helper()
	a.t = t
	if a.pageSize == 0 {
		a.pageSize = 500
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	config["project"], config["endpoint"], config["groups"] = "p", server.URL, names
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	p := gcemig.New()
	require.NoError(t, p.Configure(t.Context(), raw))
	return p
}
