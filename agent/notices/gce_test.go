package notices_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/notices"
)

// metadataServer is Google's: it answers a question that waits for a change when
// the item is not what it was at the given tag any more.
type metadataServer struct {
	*httptest.Server
	flavorless bool

	mu struct {
		sync.Mutex
		items   map[string]string
		version map[string]int
		changed chan struct{}
		waiting int
		status  int // instead of an answer
		plain   int // questions without the header
	}
}

func startMetadataServer(t *testing.T) *metadataServer {
	t.Helper()
	s := &metadataServer{}
	s.mu.items = map[string]string{"id": "4711815004234567890", "preempted": "FALSE", "maintenance-event": "NONE"}
	s.mu.version, s.mu.changed = map[string]int{}, make(chan struct{})
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *metadataServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Metadata-Flavor") != "Google" {
		s.mu.Lock()
		s.mu.plain++
		s.mu.Unlock()
		w.WriteHeader(http.StatusForbidden)
		return
	}
	name, ours := strings.CutPrefix(r.URL.Path, "/computeMetadata/v1/instance/")
	for {
		s.mu.Lock()
		item, known := s.mu.items[name]
		tag := fmt.Sprintf("%s-%d", name, s.mu.version[name])
		status, changed := s.mu.status, s.mu.changed
		waits := r.URL.Query().Get("wait_for_change") == "true" && r.URL.Query().Get("last_etag") == tag && status == 0
		if waits {
			s.mu.waiting++
		}
		s.mu.Unlock()
		switch {
		case waits:
			select {
			case <-changed:
			case <-r.Context().Done():
				return
			}
			continue
		case status != 0:
			w.WriteHeader(status)
			return
		}
		if !s.flavorless {
			w.Header().Set("Metadata-Flavor", "Google")
		}
		if !ours || !known {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", tag)
		_, _ = w.Write([]byte(item))
		return
	}
}

func (s *metadataServer) set(name, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.items[name] = body
	s.mu.version[name]++
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

func (s *metadataServer) fail(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.status = status
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// awaitWaiting waits until both items are being waited for.
func (s *metadataServer) awaitWaiting(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mu.waiting >= n
	}, within, time.Millisecond)
}

func TestGCEWaitsForAChange(t *testing.T) {
	s := startMetadataServer(t)
	w := open(t, notices.GCE, s.URL, nil)
	id, err := w.InstanceID(t.Context())
	require.NoError(t, err)
	require.Equal(t, "4711815004234567890", id)
	heard := watch(t, w)
	s.awaitWaiting(t, 2)
	requireNothing(t, heard)
	s.set("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE") // goes on elsewhere
	s.awaitWaiting(t, 3)
	requireNothing(t, heard)
	s.set("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
	require.Equal(t, notices.Notice{Kind: notices.Maintenance}, next(t, heard))
	s.set("preempted", "TRUE")
	require.Equal(t, notices.Notice{Kind: notices.Spot}, next(t, heard))
	require.Zero(t, s.mu.plain)
}

// "Maintenance events can cause occasional disruptions to the availability of the
// metadata server", with status 503.
func TestGCEThatIsAwayForAMoment(t *testing.T) {
	s, j := startMetadataServer(t), &journal{}
	heard := watch(t, open(t, notices.GCE, s.URL, j))
	s.awaitWaiting(t, 2)
	s.fail(http.StatusServiceUnavailable)
	require.Eventually(t, func() bool { return strings.Count(j.text(), "not told of interruptions") == 2 }, within, time.Millisecond, "one for each item")
	s.set("preempted", "TRUE")
	s.fail(0)
	require.Equal(t, notices.Spot, next(t, heard).Kind)
}

func TestGCEWithValuesThatMakeNoSense(t *testing.T) {
	s, j := startMetadataServer(t), &journal{}
	s.set("preempted", "MAYBE")
	heard := watch(t, open(t, notices.GCE, s.URL, j))
	require.Eventually(t, func() bool { return strings.Contains(j.text(), "MAYBE") }, within, time.Millisecond)
	requireNothing(t, heard)
	s.set("preempted", "TRUE")
	require.Equal(t, notices.Spot, next(t, heard).Kind)
}

// Anybody can answer on an address; only Google's server has the header.
func TestGCEWithoutItsHeaderIsNotBelieved(t *testing.T) {
	s, j := startMetadataServer(t), &journal{}
	s.flavorless = true
	s.set("preempted", "TRUE")
	heard := watch(t, open(t, notices.GCE, s.URL, j))
	require.Eventually(t, func() bool { return strings.Contains(j.text(), "not Google's") }, within, time.Millisecond)
	requireNothing(t, heard)
}
