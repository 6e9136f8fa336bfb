package frontproxy_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/frontproxy"
	"github.com/spillway-ci/spillway/gitlab/route"
)

// takes has a job kept for every machine that asks; told is what became of it.
func takes(job string, told *error) func(*frontproxy.Options) {
	return func(o *frontproxy.Options) {
		o.Take = func(_ context.Context, _ route.Caller, _ []byte, deliver func([]byte) error) bool {
			*told = deliver([]byte(job))
			return true
		}
	}
}

func TestAJobThatIsKeptIsGivenInsteadOfAskingGitLab(t *testing.T) {
	told := errors.New("not called")
	s := newStand(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("GitLab was asked") }), takes(payload(7, 100_000), &told))
	a := s.ask("s_1")
	require.Equal(t, http.StatusCreated, a.status)
	require.Equal(t, payload(7, 100_000), a.body)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.Equal(t, "lu-1", a.header.Get("X-GitLab-Last-Update"), "its own: of the queue it has seen no more")
	require.NoError(t, told)
}

// flushing is a ResponseWriter at whose flush something happens.
type flushing struct {
	http.ResponseWriter
	flush func() error
}

func (f flushing) FlushError() error { return f.flush() }

// A runner hangs up as soon as it has decoded its job. Who took that for a job that has not
// arrived would give it to another machine too.
func TestWhetherAJobThatIsKeptHasArrived(t *testing.T) {
	gone := errors.New("stream closed")
	tests := map[string]struct {
		version int // of HTTP
		before  bool
		writer  http.ResponseWriter // nil: a good one
		flush   error
		arrived bool
	}{
		"HTTP/1: it hangs up afterwards":    {version: 1, arrived: true},
		"HTTP/1: the connection is gone":    {version: 1, flush: gone},
		"HTTP/1: it can't be written":       {version: 1, writer: &broken{http.Header{}}},
		"HTTP/1: it can't be flushed":       {version: 1, flush: http.ErrNotSupported, arrived: true},
		"HTTP/1: it had hung up":            {version: 1, before: true},
		"HTTP/2: it hangs up afterwards":    {version: 2, arrived: true},
		"HTTP/2: it has closed its stream":  {version: 2, flush: gone, arrived: true},
		"HTTP/2: it can't be written":       {version: 2, writer: &broken{http.Header{}}},
		"HTTP/2: it had hung up and is out": {version: 2, before: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var told error
			s := newStand(t, http.NotFoundHandler(), takes(payload(7, 0), &told))
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://spillway/api/v4/jobs/request", strings.NewReader(question("s_1", true)))
			require.NoError(t, err)
			request.ProtoMajor = tt.version
			if tt.before {
				hangUp()
			}
			if tt.writer == nil {
				tt.writer = httptest.NewRecorder()
			}
			s.proxy.ServeHTTP(flushing{tt.writer, func() error { hangUp(); return tt.flush }}, request)
			if tt.arrived {
				require.NoError(t, told)
			} else {
				require.Error(t, told)
			}
		})
	}
}
