package migstub

import (
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOperationsAreBounded(t *testing.T) {
	c := everything(func() time.Time { return time.Unix(0, 0) })
	first := &operation{name: "first", requestID: "r", kind: "k", target: "t"}
	c.operations.remember(first)
	for range maxOperations - 1 {
		c.operations.remember(&operation{})
	}
	require.Same(t, first, c.operations.all[0])
	require.Len(t, c.operations.byRequest, 1)
	c.operations.remember(&operation{})
	require.Len(t, c.operations.all, maxOperations)
	require.Empty(t, c.operations.byRequest)
}

func TestCallsAreBounded(t *testing.T) {
	l := newCallLog()
	for i := range maxCalls + 1 {
		l.add(Call{Op: "resize", Group: fmt.Sprint(i)})
	}
	require.Len(t, l.list, maxCalls-maxCalls/10+1)
	require.Equal(t, fmt.Sprint(maxCalls), l.list[len(l.list)-1].Group)
	require.Equal(t, maxCalls+1, l.count["resize"])
}

// batchOf is a request with these parts.
func batchOf(t *testing.T, c *Cloud, parts ...string) *httptest.ResponseRecorder {
	t.Helper()
	var body strings.Builder
	w := multipart.NewWriter(&body)
	for i, p := range parts {
		part, err := w.CreatePart(map[string][]string{"Content-Type": {"application/http"}, "Content-ID": {fmt.Sprintf("<%d>", i)}})
		require.NoError(t, err)
		_, err = io.WriteString(part, p)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, batchPath, strings.NewReader(body.String()))
	r.Header.Set("Content-Type", "multipart/mixed; boundary="+w.Boundary())
	rec := httptest.NewRecorder()
	c.ServeHTTP(rec, r)
	return rec
}

func answersOf(t *testing.T, rec *httptest.ResponseRecorder) (list []string) {
	t.Helper()
	_, params, err := mime.ParseMediaType(rec.Header().Get("Content-Type"))
	require.NoError(t, err)
	for r := multipart.NewReader(rec.Body, params["boundary"]); ; {
		part, err := r.NextPart()
		if err != nil {
			return list
		}
		raw, err := io.ReadAll(part)
		require.NoError(t, err)
		list = append(list, part.Header.Get("Content-ID")+" "+string(raw))
	}
}

func TestBatches(t *testing.T) {
	c := everything(nil)
	const get = "GET /compute/v1/projects/p/zones HTTP/1.1\r\nHost: x\r\n\r\n"
	answers := answersOf(t, batchOf(t, c, get, strings.Replace(get, "zones", "nothing", 1)))
	require.Len(t, answers, 2)
	require.Contains(t, answers[0], "<response-0> HTTP/1.1 200 OK")
	require.Contains(t, answers[1], "<response-1> HTTP/1.1 404 Not Found")

	parts := make([]string, maxBatch+1)
	for i := range parts {
		parts[i] = strings.Replace(get, "zones", "nothing", 1)
	}
	require.Len(t, answersOf(t, batchOf(t, c, parts...)), maxBatch)
	require.Empty(t, answersOf(t, batchOf(t, c, "not HTTP")))
	require.Empty(t, answersOf(t, batchOf(t, c, strings.Replace(get, "GET /compute/v1/projects/p/zones", "POST "+batchPath, 1))))

	rec := httptest.NewRecorder()
	c.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, batchPath, http.NoBody))
	require.Equal(t, http.StatusBadRequest, rec.Code)
}

// A list is by name, or the newest first.
func TestOrders(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := New(Options{Now: func() time.Time { return now }})
	for _, name := range []string{"c", "a", "b"} {
		c.AddGroup(GroupConfig{Name: name, Zone: "europe-west1-b"})
		now = now.Add(time.Second)
	}
	for order, want := range map[string]string{"": "abc", "name": "abc", "creationTimestamp%20desc": "bac"} {
		_, answer := request1(t, c, "GET", basePath+"projects/p/zones/europe-west1-b/instanceGroupManagers?orderBy="+order, "")
		var got string
		for _, item := range answer["items"].([]any) { //nolint:forcetypeassert // the schema test looks at types
			got += item.(map[string]any)["name"].(string) //nolint:forcetypeassert // the schema test looks at types
		}
		require.Equal(t, want, got, order)
	}
}
