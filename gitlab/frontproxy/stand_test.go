package frontproxy_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/frontproxy"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

const (
	runnerToken = "glrt-t1_runnersecret00000000"
	jobToken    = "glcbt-jobsecret0000000000000"
)

// patience is for what must come, however busy the machine is.
const patience = 90 * time.Second

// book is a model of the store's book of routed jobs.
type book struct {
	sync.Mutex
	orders  map[spillway.MachineID]bool
	open    map[spillway.JobID]store.RoutedJob
	ended   []spillway.JobID
	said    map[spillway.JobID]int // confirmations
	late    bool                   // every confirmation is
	err     error                  // of every call
	beginOK func() error           // called before a begin is booked
	events  func(what string)      // "end 7"
}

func newBook() *book {
	return &book{orders: map[spillway.MachineID]bool{}, open: map[spillway.JobID]store.RoutedJob{}, said: map[spillway.JobID]int{}}
}

func (b *book) BeginRouted(_ context.Context, j store.RoutedJob) (bool, error) {
	b.Lock()
	defer b.Unlock()
	if b.err != nil {
		return false, b.err
	}
	if b.beginOK != nil {
		if err := b.beginOK(); err != nil {
			return false, err
		}
	}
	if _, again := b.open[j.ID]; b.orders[j.Machine] && !again {
		return false, nil
	}
	b.open[j.ID] = j
	return true, nil
}

func (b *book) ConfirmRouted(_ context.Context, id spillway.JobID) (store.Confirmation, error) {
	b.Lock()
	defer b.Unlock()
	if b.err != nil {
		return store.Unbooked, b.err
	}
	b.said[id]++
	if b.events != nil {
		b.events("confirm " + string(id))
	}
	_, open := b.open[id]
	switch {
	case b.late:
		return store.TooLate, nil
	case open:
		return store.Confirmed, nil
	}
	return store.Unbooked, nil
}

func (b *book) EndRouted(_ context.Context, id spillway.JobID) (bool, error) {
	b.Lock()
	defer b.Unlock()
	if b.err != nil {
		return false, b.err
	}
	_, was := b.open[id]
	delete(b.open, id)
	b.ended = append(b.ended, id)
	if b.events != nil {
		b.events("end " + string(id))
	}
	return was, nil
}

func (b *book) Ordered(_ context.Context, _ string, id spillway.MachineID) (router.DrainOrder, bool, error) {
	b.Lock()
	defer b.Unlock()
	return router.DrainOrder{Machine: id, On: b.orders[id]}, b.orders[id], b.err
}

func (b *book) Routed(context.Context, string, bool) (store.RoutedBook, error) {
	b.Lock()
	defer b.Unlock()
	books := map[spillway.MachineID]store.RoutedMachine{}
	for _, j := range b.open {
		m := books[j.Machine]
		m.Open = append(m.Open, j)
		books[j.Machine] = m
	}
	return store.RoutedBook{Machines: books}, b.err
}

func (b *book) order(id spillway.MachineID, on bool) {
	b.Lock()
	defer b.Unlock()
	b.orders[id] = on
}

func (b *book) fail(err error) {
	b.Lock()
	defer b.Unlock()
	b.err = err
}

func (b *book) has(id spillway.JobID) bool {
	b.Lock()
	defer b.Unlock()
	_, open := b.open[id]
	return open
}

func (b *book) job(id spillway.JobID) store.RoutedJob {
	b.Lock()
	defer b.Unlock()
	return b.open[id]
}

// contacts records who was heard.
type contacts struct {
	sync.Mutex
	heard     map[spillway.MachineID]int
	waiting   int
	forgotten []string
	refuse    error
}

func newContacts() *contacts { return &contacts{heard: map[spillway.MachineID]int{}} }

func (c *contacts) Admit(who route.Caller, at time.Time) error {
	c.Heard(who, at)
	c.Lock()
	defer c.Unlock()
	return c.refuse
}

func (c *contacts) Heard(who route.Caller, _ time.Time) {
	c.Lock()
	defer c.Unlock()
	c.heard[who.System]++
}

func (c *contacts) Waiting(route.Caller) func() {
	c.Lock()
	defer c.Unlock()
	c.waiting++
	return func() {
		c.Lock()
		defer c.Unlock()
		c.waiting--
	}
}

func (c *contacts) Forget(hash string, system spillway.MachineID) {
	c.Lock()
	defer c.Unlock()
	c.forgotten = append(c.forgotten, hash+" "+string(system))
}

// open is how many questions wait.
func (c *contacts) open() int {
	c.Lock()
	defer c.Unlock()
	return c.waiting
}

func (c *contacts) times(id spillway.MachineID) int {
	c.Lock()
	defer c.Unlock()
	return c.heard[id]
}

// log is what the proxy's hooks were told.
type log struct {
	sync.Mutex
	lines []string
}

func (l *log) add(format string, args ...any) {
	l.Lock()
	defer l.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *log) all() string {
	l.Lock()
	defer l.Unlock()
	return strings.Join(l.lines, "\n")
}

// stand is a proxy in front of a fake GitLab.
type stand struct {
	t        testing.TB
	gitlab   *httptest.Server
	front    *httptest.Server
	proxy    *frontproxy.Proxy
	book     *book
	contacts *contacts
	log      *log // the events, and the calls of Keep, Fail and Offer
}

// newStand starts both. upstream is GitLab's handler.
func newStand(t testing.TB, upstream http.Handler, changes ...func(*frontproxy.Options)) *stand {
	t.Helper()
	s := &stand{t: t, book: newBook(), contacts: newContacts(), log: &log{}}
	s.gitlab = httptest.NewServer(upstream)
	t.Cleanup(s.gitlab.Close)
	s.start(changes...)
	return s
}

func (s *stand) start(changes ...func(*frontproxy.Options)) {
	s.t.Helper()
	target, err := url.Parse(s.gitlab.URL)
	require.NoError(s.t, err)
	o := frontproxy.Options{
		GitLab: target, Book: s.book, Contacts: s.contacts,
		Tokens: route.NewTokens(map[string][]spillway.Pool{runnerToken: {{Name: "p", CapacityPerInstance: 1}}}),
		Keep: func(_ context.Context, id int64, token string) error {
			require.Equal(s.t, jobToken, token)
			s.log.add("keep %d", id)
			return nil
		},
		Fail: func(_ context.Context, id int64, token, reason, trace string) error {
			require.Equal(s.t, jobToken, token)
			require.Equal(s.t, "runner_system_failure", reason)
			s.log.add("fail %d: %s", id, trace)
			return nil
		},
		Events: frontproxy.Events{
			Withheld: func(who route.Caller, why frontproxy.Why) { s.log.add("withheld %s %s", who.System, string(why)) },
			Given:    func(who route.Caller, job spillway.JobID) { s.log.add("given %s %s", who.System, job) },
			Undelivered: func(_ route.Caller, job spillway.JobID, why frontproxy.Why, err error) {
				s.log.add("undelivered %s %s %v", job, string(why), err)
			},
			Late:        func(job spillway.JobID) { s.log.add("late %s", job) },
			Ended:       func(job spillway.JobID) { s.log.add("ended %s", job) },
			StoreFailed: func(what string, err error) { s.log.add("store %s: %v", what, err) },
			Upstream:    func(err error) { s.log.add("upstream: %v", err) },
		},
	}
	for _, change := range changes {
		change(&o)
	}
	s.proxy, err = frontproxy.New(o)
	require.NoError(s.t, err)
	s.front = httptest.NewServer(s.proxy)
	s.t.Cleanup(s.front.Close)
}

// run runs the proxy's own loop.
func (s *stand) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.proxy.Run(ctx)
	}()
	s.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// answer is a whole answer.
type answer struct {
	status int
	header http.Header
	body   string
}

func (s *stand) do(method, path, body string, header ...string) answer {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.front.URL+path, strings.NewReader(body))
	require.NoError(s.t, err)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// ask is a job request of a machine.
func (s *stand) ask(system string) answer {
	s.t.Helper()
	return s.do(http.MethodPost, "/api/v4/jobs/request", question(system, true))
}

func question(system string, twoPhase bool) string {
	text, err := json.Marshal(map[string]any{
		"token": runnerToken, "system_id": system, "last_update": "lu-1",
		"info": map[string]any{"features": map[string]any{"two_phase_job_commit": twoPhase}},
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// payload is a job as GitLab gives it, with so many bytes of variables.
func payload(id int64, filler int) string {
	return fmt.Sprintf(`{"id":%d,"token":%q,"allow_git_fetch":true,"job_info":{"id":%d},"runner_info":{"timeout":600},"variables":[{"key":"X","value":%q}]}`,
		id, jobToken, id, strings.Repeat("v", filler))
}

// gives is a GitLab that gives the same job each time.
func gives(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-GitLab-Last-Update", "lu-2")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

// dial opens a raw connection to the proxy.
func (s *stand) dial() (net.Conn, *bufio.Reader) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.front.Listener.Addr().String())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(s.t, conn.SetDeadline(time.Now().Add(patience)))
	return conn, bufio.NewReader(conn)
}

func (s *stand) eventually(check func() bool, text string) {
	s.t.Helper()
	require.Eventually(s.t, check, patience, 2*time.Millisecond, text)
}

var errDown = errors.New("store is down")

// reader returns n bytes without holding them.
type reader struct{ left int64 }

var block = bytes.Repeat([]byte("0123456789abcdef"), 2048)

func (r *reader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), int64(len(block)), r.left))
	copy(p, block[:n])
	r.left -= int64(n)
	return n, nil
}
