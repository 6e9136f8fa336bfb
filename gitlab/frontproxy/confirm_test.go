package frontproxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/frontproxy"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/store"
)

const (
	// firstWord is what a runner says of a job before it begins, and runsOn while it runs.
	firstWord = `{"info":{"labels":{"spillway-instance":"i-1"}},"token":"x","state":"running","output":{}}`
	runsOn    = `{"info":{"labels":{"spillway-instance":"i-1"}},"token":"x","state":"running","output":{"checksum":"crc32:00000000","bytesize":0}}`
)

func TestAJobIsConfirmedBeforeGitLabHearsThatItRuns(t *testing.T) {
	var s *stand
	s = newStand(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.log.add("gitlab %s", r.URL.Path)
	}))
	s.book.events = func(what string) { s.log.add("%s", what) }
	for _, text := range []string{firstWord, runsOn, `{"state":"pending"}`, `not even an object`} {
		s.log.lines = nil
		require.Equal(t, http.StatusOK, s.do(http.MethodPut, "/api/v4/jobs/7", text).status)
		require.Equal(t, "confirm 7\ngitlab /api/v4/jobs/7", s.log.all(), text)
	}
	s.log.lines = nil
	require.Equal(t, http.StatusOK, s.do(http.MethodPut, "/api/v4/jobs/7", `{"state":"success"}`).status)
	require.Equal(t, "gitlab /api/v4/jobs/7\nend 7\nended 7", s.log.all(), "what is over runs no more")
}

func TestAJobThatWasNotConfirmedInTimeIsNotBegun(t *testing.T) {
	s := newStand(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("GitLab was told") }))
	s.book.late = true
	a := s.do(http.MethodPut, "/api/v4/jobs/7", firstWord)
	require.Equal(t, http.StatusForbidden, a.status, "a runner gives the job up at a 403")
	require.Equal(t, "late 7", s.log.all())
}

func TestOnlyJobsThatGitLabWaitsForAreToBeConfirmed(t *testing.T) {
	s := newStand(t, gives(http.StatusCreated, payload(7, 0)))
	require.Equal(t, http.StatusCreated, s.ask("s_1").status)
	require.Equal(t, route.ConfirmWithin, s.book.job("7").ConfirmWithin)
	require.Equal(t, http.StatusCreated, s.do(http.MethodPost, "/api/v4/jobs/request", question("s_2", false)).status)
	require.Zero(t, s.book.job("7").ConfirmWithin, "GitLab takes it as running already")
}

func TestWhatGitLabTakesOfAJobConfirmsIt(t *testing.T) {
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(map[bool]int{true: http.StatusAccepted, false: http.StatusForbidden}[strings.Contains(r.URL.Path, "/7/")])
	}))
	said := func(job spillway.JobID) int {
		s.book.Lock()
		defer s.book.Unlock()
		return s.book.said[job]
	}
	s.run()
	s.book.fail(errDown)
	for _, job := range []int{8, 7, 7} {
		s.do(http.MethodPatch, fmt.Sprintf("/api/v4/jobs/%d/trace", job), "text")
	}
	s.eventually(func() bool { return strings.Contains(s.log.all(), "store confirm: store is down") }, "it was tried")
	s.book.fail(nil)
	s.eventually(func() bool { return said("7") == 1 }, "it is tried again")
	s.do(http.MethodPatch, "/api/v4/jobs/7/trace", "text")
	require.Zero(t, said("8"), "that it is the job's machine is not shown by what GitLab refuses")
	require.Equal(t, 1, said("7"), "not with each piece")
}

// A replica that is killed between the booking of a job and its delivery keeps the
// machine for as long as the machine could still acknowledge the job, and no longer.
func TestAJobThatDidNotArriveFreesItsMachine(t *testing.T) {
	var clock atomic.Int64
	clock.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	now := func() time.Time { return time.Unix(0, clock.Load()) }
	st, err := store.OpenEmbeddedAt(now, store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	s := newStand(t, answers(http.StatusOK, ""), func(o *frontproxy.Options) { o.Book, o.Now = st, now })
	begin := func(id string) {
		begun, err := st.BeginRouted(t.Context(), store.RoutedJob{
			ID: spillway.JobID(id), Pool: "p", Machine: "s_1", Begun: now(), Until: now().Add(3 * time.Hour), ConfirmWithin: route.ConfirmWithin,
		})
		require.NoError(t, err)
		require.True(t, begun)
	}
	says := func(id, text string) int { return s.do(http.MethodPut, "/api/v4/jobs/"+id, text).status }
	open := func() (ids []string) {
		book, err := st.Routed(t.Context(), "p", true)
		require.NoError(t, err)
		for _, j := range book.Machines["s_1"].Open {
			ids = append(ids, string(j.ID))
		}
		return ids
	}
	begin("1")
	require.Equal(t, http.StatusOK, says("1", firstWord))
	begin("2") // and here its replica is killed
	require.Equal(t, http.StatusOK, says("1", `{"state":"success"}`))
	clock.Add(int64(route.ConfirmWithin - 1))
	require.Equal(t, []string{"2"}, open(), "its machine may have it")
	clock.Add(1)
	require.Empty(t, open())
	require.Equal(t, http.StatusForbidden, says("2", firstWord), "the machine may be gone at any moment")

	begin("3")
	require.Equal(t, http.StatusOK, says("3", firstWord))
	clock.Add(int64(2 * time.Hour))
	require.Equal(t, []string{"3"}, open(), "it runs")
	require.Equal(t, http.StatusOK, says("3", runsOn))
}

// bubble is a proxy that can be in a synctest bubble: nothing of it is in the network.
func bubble(t *testing.T) (*frontproxy.Proxy, *book, *int) {
	t.Helper()
	told := 0
	b := newBook()
	p, err := frontproxy.New(frontproxy.Options{
		GitLab: &url.URL{Scheme: "http", Host: "gitlab.test"}, Book: b, Contacts: newContacts(), Tokens: route.NewTokens(nil),
		Keep: func(context.Context, int64, string) error { return errors.New("nothing is to be kept") },
		Transport: roundTrip(func(*http.Request) *http.Response {
			told++
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}
		}),
	})
	require.NoError(t, err)
	return p, b, &told
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := f(r)
	resp.Request = r
	return resp, nil
}

func put(ctx context.Context, p *frontproxy.Proxy, text string) int {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPut, "/api/v4/jobs/7", strings.NewReader(text))
	p.ServeHTTP(w, r)
	return w.Code
}

func TestAWordWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, told := bubble(t)
		b.fail(errDown)
		began := time.Now()
		require.Equal(t, http.StatusForbidden, put(t.Context(), p, firstWord), "the job has not begun, and won't here")
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Equal(t, http.StatusServiceUnavailable, put(t.Context(), p, runsOn), "no job is ended because our store is away")
		require.Zero(t, *told)

		began = time.Now()
		require.Equal(t, http.StatusOK, put(t.Context(), p, `{"state":"running","info":{"labels":{"a":"b"}}}`), "it is on no instance of ours")
		require.Zero(t, time.Since(began))
		require.Equal(t, 1, *told)

		time.AfterFunc(10*time.Second-1, func() { b.fail(nil) })
		began = time.Now()
		require.Equal(t, http.StatusOK, put(t.Context(), p, firstWord))
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Equal(t, 2, *told)

		b.fail(errDown)
		began = time.Now()
		require.Equal(t, http.StatusOK, put(t.Context(), p, runsOn), "it was put down before")
		require.Zero(t, time.Since(began))
	})
}

func TestAWordOfARunnerThatHangsUpIsNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, told := bubble(t)
		b.fail(errDown)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		put(ctx, p, firstWord)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.Zero(t, *told)
	})
}
