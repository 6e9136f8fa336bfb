package frontproxy_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sink is a GitLab that takes an artifact and gives one back.
func sink(bytes int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", fmt.Sprint(bytes))
			_, _ = io.CopyBuffer(struct{ io.Writer }{w}, &reader{left: bytes}, make([]byte, 32<<10))
			return
		}
		sum := sha256.New()
		n, err := io.CopyBuffer(sum, struct{ io.Reader }{r.Body}, make([]byte, 32<<10))
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(w, "%d %x", n, sum.Sum(nil))
	})
}

// peak is the most memory in use until stop is closed, looked at every few milliseconds.
func peak(stop <-chan struct{}) <-chan uint64 {
	most := make(chan uint64, 1)
	go func() {
		var highest uint64
		for ticks := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-ticks.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				highest = max(highest, m.HeapInuse+m.StackInuse)
			case <-stop:
				ticks.Stop()
				most <- highest
				return
			}
		}
	}()
	return most
}

func (s *stand) upload(t testing.TB, bytes int64, chunked bool) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.front.URL+"/api/v4/jobs/7/artifacts", &reader{left: bytes})
	require.NoError(t, err)
	if !chunked {
		request.ContentLength = bytes
	}
	resp, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(text), fmt.Sprintf("%d ", bytes)), "%.100s", text)
}

func (s *stand) download(t testing.TB, bytes int64) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.front.URL+"/api/v4/jobs/7/artifacts", http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer resp.Body.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, make([]byte, 32<<10))
	require.NoError(t, err)
	require.Equal(t, bytes, n)
}

func TestALargeArtifactIsNotHeldInMemory(t *testing.T) {
	const artifact, limit = 256 << 20, 16 << 20
	s := newStand(t, sink(artifact))
	s.upload(t, 1<<20, false) // what is made once
	for name, transfer := range map[string]func(){
		"upload":           func() { s.upload(t, artifact, false) },
		"upload in chunks": func() { s.upload(t, artifact, true) },
		"download":         func() { s.download(t, artifact) },
	} {
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		stop := make(chan struct{})
		most := peak(stop)
		transfer()
		close(stop)
		added := int64(<-most) - int64(before.HeapInuse+before.StackInuse)
		t.Logf("%s of %d MiB: %.1f MiB at the peak, client and GitLab included", name, artifact>>20, float64(added)/(1<<20))
		require.Less(t, added, int64(limit), name)
	}
}

// BenchmarkArtifact is 1 GiB through the proxy, client and GitLab in the same process.
func BenchmarkArtifact(b *testing.B) {
	const artifact = 1 << 30
	s := newStand(b, sink(artifact))
	for name, transfer := range map[string]func(){
		"upload": func() { s.upload(b, artifact, true) }, "download": func() { s.download(b, artifact) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(artifact)
			stop := make(chan struct{})
			most := peak(stop)
			for b.Loop() {
				transfer()
			}
			close(stop)
			b.ReportMetric(float64(<-most)/(1<<20), "MiB-peak")
		})
	}
}

// BenchmarkJobRequest is one job request that gets a job, from end to end.
func BenchmarkJobRequest(b *testing.B) {
	s := newStand(b, gives(http.StatusCreated, payload(7, 20_000)))
	for b.Loop() {
		if a := s.ask("s_1"); a.status != http.StatusCreated {
			b.Fatal(a.status)
		}
	}
}
