package frontproxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/frontproxy"
	"github.com/spillway-ci/spillway/gitlab/route"
)

func TestAJobIsBookedAndItsBytesPassUnchanged(t *testing.T) {
	asked := make(chan string, 1)
	text := payload(7, 1000) + "\n "
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- string(body)
		require.Equal(t, "identity", r.Header.Get("Accept-Encoding"), "what is to be read must not be compressed")
		require.Equal(t, int64(len(body)), r.ContentLength)
		gives(http.StatusCreated, text).ServeHTTP(w, r)
	}))
	before := time.Now()
	a := s.do(http.MethodPost, "/api/v4/jobs/request", " "+question("s_1", true)+"\n", "X-Request-Id", "x")
	require.Equal(t, http.StatusCreated, a.status)
	require.Equal(t, text, a.body)
	require.Equal(t, "lu-2", a.header.Get("X-GitLab-Last-Update"))
	require.Equal(t, " "+question("s_1", true)+"\n", <-asked, "the request's bytes too")
	s.eventually(func() bool { return s.log.all() == "given s_1 7" }, "given")
	j := s.book.job("7")
	require.Equal(t, "p", j.Pool)
	require.Equal(t, spillway.MachineID("s_1"), j.Machine)
	require.WithinDuration(t, before, j.Begun, time.Minute)
	require.Equal(t, 10*time.Minute+time.Hour, j.Until.Sub(j.Begun), "the job's own timeout and an hour")
	require.Equal(t, 2, s.contacts.times("s_1"), "when it asked and when it was given the job")
	s.eventually(func() bool { return s.contacts.open() == 0 }, "its question is over")
}

func TestACordonedMachineIsAnsweredAtOnce(t *testing.T) {
	s := newStand(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("GitLab was asked") }))
	s.book.order("s_1", true)
	for _, path := range []string{"/api/v4/jobs/request", "/api/v4/jobs/request/", "/api/v4/jobs%2Frequest", "/api/v4//jobs/%72equest.json", "/x/%2e%2e/api/v4/jobs/request"} {
		a := s.do(http.MethodPost, path, question("s_1", true))
		require.Equal(t, http.StatusNoContent, a.status, path)
		require.Equal(t, "lu-1", a.header.Get("X-GitLab-Last-Update"), "its own, so that it misses nothing")
		require.Empty(t, a.body)
	}
	require.Contains(t, s.log.all(), "withheld s_1 ordered")
	require.Equal(t, 5, s.contacts.times("s_1"))
}

func TestWithoutALastUpdateNoneIsEchoed(t *testing.T) {
	s := newStand(t, gives(http.StatusNoContent, ""))
	s.book.order("s_1", true)
	for _, lastUpdate := range []string{`""`, `"a\nSet-Cookie: x"`, `"` + strings.Repeat("x", 256) + `"`} {
		a := s.do(http.MethodPost, "/api/v4/jobs/request", `{"token":"`+runnerToken+`","system_id":"s_1","last_update":`+lastUpdate+`}`)
		require.Equal(t, http.StatusNoContent, a.status)
		require.NotContains(t, a.header, "X-Gitlab-Last-Update")
		require.NotContains(t, a.header, "Set-Cookie")
	}
}

func TestAJobForAMachineOrderedMeanwhileIsKept(t *testing.T) {
	var s *stand
	s = newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.book.order("s_1", true) // after the proxy has looked
		gives(http.StatusCreated, payload(7, 0)).ServeHTTP(w, r)
	}), func(o *frontproxy.Options) {
		o.Offer = func(_ context.Context, job []byte, who route.Caller) bool {
			s.log.add("offer %d bytes of %s", len(job), who.System)
			return true
		}
	})
	a := s.ask("s_1")
	require.Equal(t, http.StatusNoContent, a.status)
	require.Equal(t, "lu-1", a.header.Get("X-GitLab-Last-Update"))
	require.Empty(t, a.header.Get("Content-Type"))
	require.False(t, s.book.has("7"))
	require.Equal(t, fmt.Sprintf("keep 7\nundelivered 7 ordered <nil>\noffer %d bytes of s_1", len(payload(7, 0))), s.log.all())
}

func TestUnknownIsNotDelivered(t *testing.T) {
	var s *stand
	s = newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.book.fail(errDown)
		gives(http.StatusCreated, payload(7, 0)).ServeHTTP(w, r)
	}), func(o *frontproxy.Options) {
		o.Offer = func(context.Context, []byte, route.Caller) bool {
			t.Error("a job that may be booked was offered")
			return false
		}
	})
	require.Equal(t, http.StatusNoContent, s.ask("s_1").status)
	require.Contains(t, s.log.all(), "keep 7")
	require.Contains(t, s.log.all(), "undelivered 7 unknown")
	require.Equal(t, http.StatusNoContent, s.ask("s_1").status, "and while the store is down GitLab isn't asked")
	require.Contains(t, s.log.all(), "withheld s_1 unknown")
}

func TestAMachineThatCannotBeRegisteredGetsNoJob(t *testing.T) {
	s := newStand(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("GitLab was asked") }))
	s.contacts.refuse = route.ErrSharedSystem
	require.Equal(t, http.StatusNoContent, s.ask("s_1").status)
	require.Equal(t, "withheld s_1 refused", s.log.all())
}

func TestAMachineThatCannotBeRegisteredAnyMoreGetsNoJob(t *testing.T) {
	var s *stand
	s = newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.contacts.Lock()
		s.contacts.refuse = route.ErrSharedSystem // found out while GitLab holds the question
		s.contacts.Unlock()
		gives(http.StatusCreated, payload(7, 0)).ServeHTTP(w, r)
	}))
	require.Equal(t, http.StatusNoContent, s.ask("s_1").status)
	require.Equal(t, "keep 7\nundelivered 7 refused <nil>", s.log.all())
	require.Empty(t, s.book.open)
}

func TestOtherAnswersPass(t *testing.T) {
	for _, status := range []int{204, 403, 409, 422, 429, 500, 503} {
		text := `{"message":"x"}`
		if status == 204 {
			text = ""
		}
		s := newStand(t, gives(status, text))
		a := s.ask("s_1")
		require.Equal(t, status, a.status)
		require.Equal(t, text, a.body)
		require.Equal(t, "lu-2", a.header.Get("X-GitLab-Last-Update"))
		require.Empty(t, s.book.open)
	}
}

func TestRunnersThatAreNotOursPass(t *testing.T) {
	s := newStand(t, gives(http.StatusCreated, payload(7, 0)))
	a := s.do(http.MethodPost, "/api/v4/jobs/request", `{"token":"glrt-other","system_id":"s_1"}`)
	require.Equal(t, http.StatusCreated, a.status)
	require.Equal(t, payload(7, 0), a.body)
	require.Empty(t, s.book.open)
}

func TestRequestsThatNobodyCouldBeGivenAJobFor(t *testing.T) {
	s := newStand(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("GitLab was asked") }))
	frame := len(`{"token":""}`)
	tests := []struct {
		body   string
		status int
	}{
		{"token=" + runnerToken, 400},
		{"", 400},
		{"[]", 400},
		{`{"token":7}`, 400},
		{`{"token":"` + runnerToken + `"}`, 400},
		{`{"token":"` + runnerToken + `","system_id":"a b"}`, 400},
		{`{"token":"` + strings.Repeat("x", route.MaxRequestBytes-frame+1) + `"}`, 413},
		{strings.Repeat("x", 2*route.MaxRequestBytes), 413}, // it can be sent whole before anybody reads it
	}
	for _, tt := range tests {
		a := s.do(http.MethodPost, "/api/v4/jobs/request", tt.body)
		require.Equal(t, tt.status, a.status, "%.60s", tt.body)
		require.Contains(t, a.body, `{"message":"`)
		require.NotContains(t, a.body, runnerToken)
	}
}

func TestARefusalReachesAClientThatStillSends(t *testing.T) {
	s := newStand(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("GitLab was asked") }))
	const sent, announced, tries = 512 << 10, 1 << 20, 20
	resets := 0
	for range tries {
		conn, err := net.Dial("tcp", s.front.Listener.Addr().String())
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST /api/v4/jobs/request HTTP/1.1\r\nHost: gitlab\r\nContent-Length: %d\r\n\r\n%s", announced, strings.Repeat("x", sent))
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
		if _, err = conn.Write(make([]byte, 1<<10)); err != nil {
			resets++
		}
		require.NoError(t, conn.Close())
	}
	require.Less(t, resets, tries/2, "the connection stays open for half a second: on a busy machine that may be over now and then")
}

func TestTheTokenMayStandInTheHeaderOrTheQuery(t *testing.T) {
	s := newStand(t, gives(http.StatusCreated, payload(7, 0)))
	s.do(http.MethodPost, "/api/v4/jobs/request", `{"system_id":"s_1"}`, "Runner-Token", runnerToken)
	require.Equal(t, spillway.MachineID("s_1"), s.book.job("7").Machine)
	s.do(http.MethodPost, "/api/v4/jobs/request?token="+runnerToken, `{"system_id":"s_2"}`)
	require.Equal(t, spillway.MachineID("s_2"), s.book.job("7").Machine)
}

func TestALargeJobIsBookedByItsHeadAndStreamed(t *testing.T) {
	text := payload(7, frontproxy.MaxJobBytes+100)
	s := newStand(t, gives(http.StatusCreated, text))
	a := s.ask("s_1")
	require.Equal(t, http.StatusCreated, a.status)
	require.Equal(t, len(text), len(a.body))
	require.True(t, text == a.body)
	require.True(t, s.book.has("7"))
}

func TestAJobAtTheLimitIsWhole(t *testing.T) {
	var seen int64
	text := payload(7, frontproxy.MaxJobBytes-len(payload(7, 0)))
	require.Len(t, text, frontproxy.MaxJobBytes)
	s := newStand(t, gives(http.StatusCreated, text), func(o *frontproxy.Options) {
		o.Admit = func(_ context.Context, job gitlab.Payload, _ route.Caller) (bool, string) {
			seen = job.ID
			return true, ""
		}
	})
	require.Equal(t, http.StatusCreated, s.ask("s_1").status, s.log.all())
	require.Equal(t, int64(7), seen)
}

func TestALargeJobOfAnOrderedMachineIsKept(t *testing.T) {
	var s *stand
	s = newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.book.order("s_1", true)
		gives(http.StatusCreated, payload(7, 2*frontproxy.MaxJobBytes)).ServeHTTP(w, r)
	}))
	require.Equal(t, http.StatusNoContent, s.ask("s_1").status)
	require.Contains(t, s.log.all(), "keep 7")
}

func TestWhatIsNoJobIsNotPassedOn(t *testing.T) {
	for _, text := range []string{"", "<html>", "[]", `{}`, `{"id":"x"}`, `{"id":0}`, `{"token":"t"}`, "\x1f\x8b\x08"} {
		s := newStand(t, gives(http.StatusCreated, text))
		a := s.ask("s_1")
		require.Equal(t, http.StatusBadGateway, a.status, text)
		require.JSONEq(t, `{"message":"502 GitLab gave a job that can't be read"}`, a.body)
		require.Empty(t, s.book.open)
	}
	s := newStand(t, gives(http.StatusCreated, payload(7, 0)+"}"))
	require.Equal(t, http.StatusBadGateway, s.ask("s_1").status)
	require.Contains(t, s.log.all(), "keep 7", "its head told which job it is")
}

func TestAnAnswerThatBreaksOffIsKept(t *testing.T) {
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := payload(7, 100_000)
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, text[:50_000])
		panic(http.ErrAbortHandler)
	}))
	require.Equal(t, http.StatusBadGateway, s.ask("s_1").status)
	require.Contains(t, s.log.all(), "keep 7")
	require.Empty(t, s.book.open)
}

func TestALargeAnswerThatBreaksOffIsTakenBack(t *testing.T) {
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, payload(7, 2*frontproxy.MaxJobBytes)[:frontproxy.MaxJobBytes+100_000])
		panic(http.ErrAbortHandler)
	}))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.front.URL+"/api/v4/jobs/request", strings.NewReader(question("s_1", true)))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(request)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	require.Error(t, err, "the runner sees that it is not whole")
	s.eventually(func() bool { return strings.Contains(s.log.all(), "undelivered 7 hung_up <nil>") }, "kept")
	require.False(t, s.book.has("7"))
}

func TestARunnerThatHangsUpWhileGitLabThinks(t *testing.T) {
	asked, gone := make(chan struct{}), make(chan struct{})
	s := newStand(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(asked)
		<-r.Context().Done() // the hang-up arrives at GitLab
		close(gone)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.front.URL+"/api/v4/jobs/request", strings.NewReader(question("s_1", true)))
	require.NoError(t, err)
	go func() {
		<-asked
		cancel()
	}()
	_, err = http.DefaultClient.Do(request) //nolint:bodyclose // there is no answer
	require.ErrorIs(t, err, context.Canceled)
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("GitLab still works for a runner that is gone")
	}
}

// TestARunnerThatHangsUpBeforeItsAnswer: the job was booked and is taken back, in the
// order that can't strike another machine's booking.
func TestARunnerThatHangsUpBeforeItsAnswer(t *testing.T) {
	var s *stand
	s = newStand(t, gives(http.StatusCreated, payload(7, 0)), func(o *frontproxy.Options) {
		o.Offer = func(context.Context, []byte, route.Caller) bool {
			s.log.add("offer")
			return true
		}
	})
	s.book.events = func(what string) { s.log.add("%s", what) }
	ctx, cancel := context.WithCancel(t.Context())
	var held atomic.Pointer[http.Request]
	front := s.front.Config.Handler
	s.front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held.Store(r)
		front.ServeHTTP(w, r)
	})
	s.book.beginOK = func() error { // the runner hangs up while the job is being booked
		cancel()
		<-held.Load().Context().Done()
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.front.URL+"/api/v4/jobs/request", strings.NewReader(question("s_1", true)))
	require.NoError(t, err)
	_, err = http.DefaultClient.Do(request) //nolint:bodyclose // there is no answer
	require.ErrorIs(t, err, context.Canceled)
	s.eventually(func() bool { return strings.HasSuffix(s.log.all(), "offer") }, "offered")
	require.Equal(t, "end 7\nkeep 7\nundelivered 7 hung_up <nil>\noffer", s.log.all())
}

// broken is a ResponseWriter whose connection is gone.
type broken struct{ header http.Header }

func (b *broken) Header() http.Header       { return b.header }
func (b *broken) WriteHeader(int)           {}
func (b *broken) Write([]byte) (int, error) { return 0, errors.New("connection reset by peer") }

func TestAnAnswerThatCannotBeWrittenIsTakenBack(t *testing.T) {
	s := newStand(t, gives(http.StatusCreated, payload(7, 0)))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://spillway/api/v4/jobs/request", strings.NewReader(question("s_1", true)))
	require.NoError(t, err)
	s.proxy.ServeHTTP(&broken{http.Header{}}, request)
	require.False(t, s.book.has("7"))
	require.Contains(t, s.log.all(), "keep 7\nundelivered 7 hung_up <nil>")
	require.NotContains(t, s.log.all(), "given")
}

// plain is a ResponseWriter that can't flush, as behind a middleware.
type plain struct{ http.ResponseWriter }

func (p plain) Unwrap() http.ResponseWriter { return nil }

func TestAWriterThatCannotFlushDelivers(t *testing.T) {
	s := newStand(t, gives(http.StatusCreated, payload(7, 0)))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://spillway/api/v4/jobs/request", strings.NewReader(question("s_1", true)))
	require.NoError(t, err)
	recorder := httptest.NewRecorder()
	s.proxy.ServeHTTP(plain{recorder}, request)
	require.Equal(t, payload(7, 0), recorder.Body.String())
	require.True(t, s.book.has("7"))
	require.Equal(t, "given s_1 7", s.log.all())
}

// TestARunnerThatClosesItsStreamHasItsJob: over HTTP/2 a runner that has decoded the job
// resets the stream before the server has ended it.
func TestARunnerThatClosesItsStreamHasItsJob(t *testing.T) {
	s := newStand(t, gives(http.StatusCreated, payload(7, 100)))
	front := httptest.NewUnstartedServer(s.proxy)
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	for range 100 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+"/api/v4/jobs/request", strings.NewReader(question("s_1", true)))
		require.NoError(t, err)
		resp, err := front.Client().Do(request)
		require.NoError(t, err)
		require.Equal(t, 2, resp.ProtoMajor)
		var job struct{ ID int64 }
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&job))
		_ = resp.Body.Close()
	}
	s.eventually(func() bool { return strings.Count(s.log.all(), "given s_1 7") == 100 }, "each was given")
	require.True(t, s.book.has("7"))
	require.NotContains(t, s.log.all(), "undelivered")
}

func TestALegacyRunnersJobIsFailedWhenItCannotBeDelivered(t *testing.T) {
	var s *stand
	s = newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.book.order("s_1", true)
		gives(http.StatusCreated, payload(7, 0)).ServeHTTP(w, r)
	}))
	a := s.do(http.MethodPost, "/api/v4/jobs/request", question("s_1", false))
	require.Equal(t, http.StatusNoContent, a.status)
	require.Equal(t, "fail 7: the job could not be given to the runner: the machine is ordered to drain\nundelivered 7 ordered <nil>", s.log.all(),
		"GitLab believes that it runs: kept, it would wait for its timeout")
}

func TestAdmission(t *testing.T) {
	s := newStand(t, gives(http.StatusCreated, payload(7, 0)), func(o *frontproxy.Options) {
		o.Admit = func(_ context.Context, job gitlab.Payload, who route.Caller) (bool, string) {
			require.Equal(t, int64(7), job.ID)
			return false, "no jobs on " + string(who.System)
		}
	})
	require.Equal(t, http.StatusNoContent, s.ask("s_1").status)
	require.Equal(t, "fail 7: no jobs on s_1\nundelivered 7 admission <nil>", s.log.all())
	require.Empty(t, s.book.open)

	large := newStand(t, gives(http.StatusCreated, payload(7, frontproxy.MaxJobBytes)), func(o *frontproxy.Options) {
		o.Admit = func(context.Context, gitlab.Payload, route.Caller) (bool, string) { return true, "" }
	})
	require.Equal(t, http.StatusNoContent, large.ask("s_1").status)
	require.Contains(t, large.log.all(), "fail 7: the job is larger than")

	services := strings.TrimSuffix(strings.Repeat(`{"name":"postgres:16"},`, gitlab.MaxServices+1), ",")
	many := newStand(t, gives(http.StatusCreated, `{"id":7,"token":"`+jobToken+`","services":[`+services+`]}`), func(o *frontproxy.Options) {
		o.Admit = func(context.Context, gitlab.Payload, route.Caller) (bool, string) { return true, "" }
	})
	require.Equal(t, http.StatusNoContent, many.ask("s_1").status)
	require.Contains(t, many.log.all(), "fail 7: "+gitlab.TooManyServices)
}

func TestARelativeURLRoot(t *testing.T) {
	var paths []string
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		gives(http.StatusCreated, payload(7, 0)).ServeHTTP(w, r)
	}), func(o *frontproxy.Options) { o.GitLab.Path = "/gitlab/" })
	a := s.do(http.MethodPost, "/gitlab/api/v4/jobs/request/", question("s_1", true))
	require.Equal(t, http.StatusCreated, a.status)
	require.True(t, s.book.has("7"))
	s.do(http.MethodGet, "/gitlab/group/project", "")
	require.Equal(t, []string{"/gitlab/api/v4/jobs/request/", "/gitlab/group/project"}, paths)
}

func TestAJobsTimeoutBoundsItsBooking(t *testing.T) {
	tests := []struct {
		info string
		open time.Duration
	}{
		{`{"timeout":60}`, time.Hour + time.Minute},
		{`{}`, 25 * time.Hour},
		{`{"timeout":"x"}`, 25 * time.Hour},
		{`{"timeout":-1}`, 25 * time.Hour},
		{`{"timeout":9223372036854775807}`, spillway.MaxJobTimeout + time.Hour},
	}
	for _, tt := range tests {
		s := newStand(t, gives(http.StatusCreated, `{"id":7,"token":"`+jobToken+`","runner_info":`+tt.info+`}`))
		require.Equal(t, http.StatusCreated, s.ask("s_1").status)
		j := s.book.job("7")
		require.Equal(t, tt.open, j.Until.Sub(j.Begun), tt.info)
	}
}
