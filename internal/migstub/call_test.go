package migstub_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
)

// object is a JSON object.
type object = map[string]any

// world is a Cloud on a clock that the test moves, with what it was told.
type world struct {
	*migstub.Cloud
	t    *testing.T
	at   time.Time
	told []migstub.Change
}

func newWorld(t *testing.T, o migstub.Options, groups ...migstub.GroupConfig) *world {
	t.Helper()
	w := &world{t: t, at: newClock().at}
	o.Now = func() time.Time { return w.at }
	w.Cloud = migstub.New(o)
	w.Observe = func(c migstub.Change) { w.told = append(w.told, c) }
	for _, g := range groups {
		w.AddGroup(g)
	}
	return w
}

// after moves the clock.
func (w *world) after(d time.Duration) {
	w.at = w.at.Add(d)
	w.Advance(w.at)
}

const (
	zonal    = "/compute/v1/projects/p/zones/" + zone + "/"
	regional = "/compute/v1/projects/p/regions/" + region + "/"
)

// do makes a call without a socket; the path is one of linux, whole or from
// instanceGroupManagers/linux on.
func (w *world) do(verb, path string, body any) (status int, answer object) {
	w.t.Helper()
	status, answer, err := w.try(verb, path, body)
	require.NoError(w.t, err)
	return status, answer
}

func (w *world) try(verb, path string, body any) (status int, answer object, err error) {
	w.t.Helper()
	if !strings.HasPrefix(path, "/") {
		path = zonal + path
	}
	var raw []byte
	if body != nil {
		raw, err = json.Marshal(body)
		require.NoError(w.t, err)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), verb, "http://stub"+path, bytes.NewReader(raw))
	require.NoError(w.t, err)
	resp, err := w.Transport().RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	require.NoError(w.t, json.NewDecoder(resp.Body).Decode(&answer))
	return resp.StatusCode, answer, nil
}

func (w *world) ok(verb, path string, body any) object {
	w.t.Helper()
	status, answer := w.do(verb, path, body)
	require.Equal(w.t, http.StatusOK, status, "%v", answer)
	return answer
}

func (w *world) get(path string) object { w.t.Helper(); return w.ok(http.MethodGet, path, nil) }

func (w *world) post(path string, body any) object {
	w.t.Helper()
	return w.ok(http.MethodPost, path, body)
}

const linux = "instanceGroupManagers/linux"

// resize resizes the group linux.
func (w *world) resize(size string) object {
	w.t.Helper()
	return w.post(linux+"/resize?size="+size, nil)
}

// managed is the managed instances of linux by name.
func (w *world) managed() map[string]object {
	w.t.Helper()
	byName := make(map[string]object)
	list, _ := w.post(linux+"/listManagedInstances", nil)["managedInstances"].([]any)
	for _, m := range list {
		byName[at(m, "name").(string)] = m.(object) //nolint:forcetypeassert // the schema test looks at types
	}
	return byName
}

// name is the name of any instance of the group.
func (w *world) name(group string) string {
	w.t.Helper()
	list := w.Existing(group)
	require.NotEmpty(w.t, list)
	return list[0].Name
}

// at is what is found along a path of keys; nil if there is nothing.
func at(v any, path ...string) any {
	for _, key := range path {
		switch x := v.(type) {
		case object:
			v = x[key]
		case []any:
			if len(x) == 0 {
				return nil
			}
			v = at(x[0], key)
		default:
			return nil
		}
	}
	return v
}

func reason(answer object) any { return at(answer, "error", "errors", "reason") }

func itoa(n int) string { return strconv.Itoa(n) }

func reachable(t *testing.T, url string) error {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/compute/v1/projects/ci/zones", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
