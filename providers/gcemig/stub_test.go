package gcemig_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/gcemig"
)

const (
	zoneName   = "europe-west1-b"
	regionName = "europe-west1"
)

// world is the stub and the provider on one clock that tests move.
type world struct {
	*gcemig.Provider
	t     *testing.T
	cloud *migstub.Cloud
	mu    sync.Mutex // guards at, which Watch reads too
	at    time.Time
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = w.at.Add(d)
}

// newWorld has the groups, which the provider may touch; config is added to its own.
func newWorld(t *testing.T, o migstub.Options, config map[string]any, groups ...migstub.GroupConfig) *world {
	t.Helper()
	w := &world{t: t, at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	o.Now = w.now
	w.cloud = migstub.New(o)
	names := make([]string, len(groups))
	for i, g := range groups {
		w.cloud.AddGroup(g)
		names[i] = "zones/" + g.Zone + "/" + g.Name
		if g.Region != "" {
			names[i] = "regions/" + g.Region + "/" + g.Name
		} else if g.Zone == zoneName {
			names[i] = g.Name
		}
	}
	w.Provider = w.provider(w.cloud.Transport(), config, names...)
	return w
}

func (w *world) provider(transport http.RoundTripper, config map[string]any, groups ...string) *gcemig.Provider {
	w.t.Helper()
	all := map[string]any{"project": "p", "zone": zoneName, "groups": groups, "endpoint": "http://127.0.0.1:1"}
	for key, value := range config {
		all[key] = value
	}
	raw, err := json.Marshal(all)
	require.NoError(w.t, err)
	p := gcemig.NewAt(w.now, transport)
	require.NoError(w.t, p.Configure(w.t.Context(), raw))
	return p
}

func zonal(name string, size int) migstub.GroupConfig {
	return migstub.GroupConfig{Name: name, Zone: zoneName, Size: size}
}

func (w *world) status(group string) pluginsdk.GroupStatus {
	w.t.Helper()
	all, err := w.Status(w.t.Context(), []string{group})
	require.NoError(w.t, err)
	require.NoError(w.t, all[0].Err)
	return all[0]
}

func (w *world) list(group string) []pluginsdk.Instance {
	w.t.Helper()
	all, err := w.ListInstances(w.t.Context(), group)
	require.NoError(w.t, err)
	return all
}

// ids is those of the machines that exist, the oldest first.
func (w *world) ids(group string) []string {
	var ids []string
	for _, i := range w.cloud.Existing(group) {
		ids = append(ids, i.ID)
	}
	return ids
}

func (w *world) view(group string) migstub.GroupView {
	view, ok := w.cloud.Group(group)
	require.True(w.t, ok)
	return view
}

func (w *world) raise(group string, target, expected int) error {
	_, err := w.SetDesired(w.t.Context(), pluginsdk.SetDesired{Group: group, Target: target, Expected: expected, Token: "raise"})
	return err
}

// outcomes is what became of the ids, in order.
func outcomes(results []pluginsdk.RemoveResult) (list []pluginsdk.RemoveOutcome) {
	for _, r := range results {
		list = append(list, r.Outcome)
	}
	return list
}

// requireKind checks that err is a classified one of that kind.
func requireKind(t *testing.T, want pluginsdk.Kind, err error) {
	t.Helper()
	var classified *pluginsdk.Error
	require.True(t, errors.As(err, &classified), "%v", err)
	require.Equal(t, want, classified.Kind, "%v", err)
}

// written is the writes that the cloud has seen.
func (w *world) written() (calls []migstub.Call) {
	for _, c := range w.cloud.Calls() {
		switch last(c.Op) {
		case "resize", "deleteInstances", "recreateInstances", "abandonInstances":
			calls = append(calls, c)
		}
	}
	return calls
}

func last(op string) string {
	for i := len(op) - 1; i >= 0; i-- {
		if op[i] == '.' {
			return op[i+1:]
		}
	}
	return op
}
