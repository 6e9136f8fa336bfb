package gcemig

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/googleapis/gax-go/v2/callctx"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// callHeader marks the requests of a list. It never leaves the process.
const callHeader = "x-spillway-call"

// paced takes each request from the budget, and so each page of a list. It also gives
// the requests of lists their context back: the iterators of Google's clients make
// their requests without one, and would go on for as long as the cloud takes, whatever
// the deadline.
type paced struct {
	next   http.RoundTripper
	budget *pluginsdk.Budget
	calls  atomic.Uint64
	bound  sync.Map // of lists that are being read: context.Context, by number
}

// bind returns the context that a list is to be made with. release is called once the
// list is read.
func (p *paced) bind(ctx context.Context) (marked context.Context, release func()) {
	call := strconv.FormatUint(p.calls.Add(1), 10)
	p.bound.Store(call, ctx)
	return callctx.SetHeaders(ctx, callHeader, call), func() { p.bound.Delete(call) }
}

// RoundTrip implements http.RoundTripper.
func (p *paced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = p.unbind(r)
	if err := p.budget.Take(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper closes it, also when it sends nothing
		}
		return nil, err
	}
	return p.next.RoundTrip(r)
}

// unbind is the request with the context that its mark stands for, and without it.
func (p *paced) unbind(r *http.Request) *http.Request {
	for name, values := range r.Header {
		// The clients put their headers in as they are, without canonical names.
		if !strings.EqualFold(name, callHeader) || len(values) == 0 {
			continue
		}
		ctx := r.Context()
		if bound, ok := p.bound.Load(values[0]); ok {
			ctx = bound.(context.Context)
		}
		r = r.Clone(ctx)
		delete(r.Header, name)
		return r
	}
	return r
}

// CloseIdleConnections is what http.Client's method of that name looks for.
func (p *paced) CloseIdleConnections() {
	(&http.Client{Transport: p.next}).CloseIdleConnections()
}
