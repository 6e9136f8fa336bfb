package suite

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

// listWatch sees the lists that are read from a GitLab.
type listWatch struct {
	mu struct {
		sync.Mutex
		lists []listSeen
	}
}

// listSeen is one list, as far as it has come.
type listSeen struct {
	requests int
	first    time.Time     // when its first request came
	last     time.Time     // when its last request was answered
	server   time.Duration // that it took to answer
}

// firstPage is what the query of a first page has in it and no other's.
var firstPage = []byte(`"after":null`)

// before stands before the stand-in of GitLab.
func (w *listWatch) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method+" "+r.URL.Path != gitlabtest.RouteGraphQL {
			next.ServeHTTP(rw, r)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, gitlabtest.MaxBodyBytes))
		if err != nil {
			return // the client has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		began := time.Now()
		next.ServeHTTP(rw, r)
		w.saw(bytes.Contains(body, firstPage), began, time.Now())
	})
}

// saw notes a request. Lists follow one another: there is one reader.
func (w *listWatch) saw(first bool, began, ended time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if first || len(w.mu.lists) == 0 {
		w.mu.lists = append(w.mu.lists, listSeen{first: began})
	}
	l := &w.mu.lists[len(w.mu.lists)-1]
	l.requests++
	l.last = ended
	l.server += ended.Sub(began)
}

// since is the first list that began after a time.
func (w *listWatch) since(t time.Time) (listSeen, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.mu.lists, func(l listSeen) bool { return l.first.After(t) })
	if i < 0 {
		return listSeen{}, false
	}
	return w.mu.lists[i], true
}
