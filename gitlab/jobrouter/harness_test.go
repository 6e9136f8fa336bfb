package jobrouter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
)

const (
	testToken   = "glrt-secret-of-the-fleet"
	jobSecret   = "glcbt-secret-of-the-job"
	scriptWords = "echo the-script-of-the-job"
)

var errAway = errors.New("away")

func testPool(name string, priority int) spillway.Pool {
	return spillway.Pool{
		Name: name, Priority: priority, CapacityPerInstance: 1,
		Capability: spillway.Capability{Tags: []string{"linux"}, Origin: "https://gitlab.example.com"},
	}
}

func testTokens() *route.Tokens {
	return route.NewTokens(map[string][]spillway.Pool{testToken: {testPool("first", 0), testPool("second", 1)}})
}

// record collects what a desk tells.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *record) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// has reports whether a line begins like this.
func (r *record) has(prefix string) bool { return r.count(prefix) > 0 }

func (r *record) count(prefix string) (n int) {
	for _, line := range r.all() {
		if len(line) >= len(prefix) && line[:len(prefix)] == prefix {
			n++
		}
	}
	return n
}

func (r *record) events() Events {
	return Events{
		JobFound:    func(j HeldJob) { r.add("found %s %+v", j.ID, j) },
		JobGiven:    func(j HeldJob, i GivenInfo) { r.add("given %s to %s %+v", j.ID, i.Machine, i) },
		JobKept:     func(j HeldJob) { r.add("kept %s", j.ID) },
		JobLeft:     func(j HeldJob, why string) { r.add("left %s: %s", j.ID, why) },
		JobRejected: func(j HeldJob, why string) { r.add("rejected %s: %s", j.ID, why) },
		Refused:     func(i RefusedInfo) { r.add("refused: %s: %s %+v", i.Told, i.Why, i) },
		Polled:      func(i PolledInfo) { r.add("polled %s %+v", i.Outcome, i) },
		Lease:       func(i LeaseInfo) { r.add("lease %+v", i) },
		Hold:        func(i HoldInfo) { r.add("hold %s behind %s: %s", i.Pool, i.Behind, i.Why) },
		Held:        func(i HoldInfo) { r.add("held %s behind %s: %s", i.Pool, i.Behind, i.Why) },
		Degraded:    func(token, why string) { r.add("degraded %s: %s", token, why) },
		Trouble:     func(doing string, err error) { r.add("trouble %s: %v", doing, err) },
		Panicked:    func(v any, _ []byte) { r.add("panicked %v", v) },
	}
}

// stand is a desk with everything around it.
type stand struct {
	t        *testing.T
	desk     *Desk
	gitlab   *fakeGitLab
	book     *fakeBook
	leases   *fakeLeases
	contacts *fakeContacts
	log      *record
	stop     context.CancelFunc
	done     chan struct{}
}

// set changes a stand before its desk is made.
type set func(*Options, *stand)

func newStand(t *testing.T, sets ...set) *stand {
	t.Helper()
	s := &stand{t: t, gitlab: newFakeGitLab(), book: newFakeBook(), leases: newFakeLeases(), contacts: &fakeContacts{}, log: &record{}, done: make(chan struct{})}
	o := Options{Replica: "a", Tokens: testTokens(), Dice: func() float64 { return 0.5 }}
	for _, f := range sets {
		f(&o, s)
	}
	o.Leases, o.Book, o.GitLab, o.Contacts, o.Events = s.leases, s.book, s.gitlab, s.contacts, s.log.events()
	var err error
	s.desk, err = NewDesk(o)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	s.stop = sync.OnceFunc(func() { stop(); <-s.done })
	go func() {
		defer close(s.done)
		_ = s.desk.Run(ctx) // always nil
	}()
	t.Cleanup(s.stop)
	return s
}

// runnerFeatures are those of a current runner.
func runnerFeatures() map[string]bool {
	f := map[string]bool{"image": true, "services": true, "shared": false}
	for _, name := range everyRunner {
		f[name] = true
	}
	return f
}

func legacyFeatures() map[string]bool {
	f := runnerFeatures()
	f["two_phase_job_commit"] = false
	return f
}

// requestBody is a question as a runner writes it.
func requestBody(system, pool string, features map[string]bool) []byte {
	labels := map[string]string{"spillway-instance": "i-" + system}
	if pool != "" {
		labels["spillway-pool"] = pool
	}
	body, err := json.Marshal(map[string]any{
		"token": testToken, "system_id": system, "session": map[string]string{"url": "https://" + system},
		"info": map[string]any{"name": "gitlab-runner", "version": "19.4.0", "features": features, "labels": labels},
	})
	if err != nil {
		panic(err)
	}
	return body
}

func (s *stand) waiter(system, pool string, features map[string]bool) *waiter {
	body := requestBody(system, pool, features)
	who, err := s.desk.opt.Tokens.Caller(testToken, body)
	require.NoError(s.t, err)
	return newWaiter(&who, body, "request-of-"+system, s.desk.features.of(who.Features))
}

// pending is a call that waits.
type pending struct {
	answers chan answer
	cancel  context.CancelFunc
}

// ask asks as a machine of a pool does, in the background.
func (s *stand) ask(system, pool string, features map[string]bool) *pending {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	p := &pending{answers: make(chan answer, 1), cancel: cancel}
	w := s.waiter(system, pool, features)
	leave, ok := s.desk.enter()
	require.True(s.t, ok)
	go func() {
		defer leave()
		p.answers <- s.desk.wait(ctx, w, 0)
	}()
	return p
}

func (s *stand) askFirst(system string) *pending { return s.ask(system, "first", runnerFeatures()) }

func (p *pending) got() (answer, bool) {
	select {
	case a := <-p.answers:
		return a, true
	default:
		return answer{}, false
	}
}

// mustGet is the answer, which must be there, with this job.
func (p *pending) mustGet(t *testing.T, id int64) answer {
	t.Helper()
	a, ok := p.got()
	require.True(t, ok, "the call must be answered")
	require.Equal(t, aJob, a.verdict)
	require.Equal(t, string(jobBody(id)), string(a.body), "a job's bytes go through unchanged")
	return a
}

func (p *pending) mustWait(t *testing.T) {
	t.Helper()
	a, ok := p.got()
	require.False(t, ok, "the call must still wait, and was told %d", a.verdict)
}

func mustFeatures(f map[string]bool) []byte {
	b, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return b
}

// idOf is the id of the job in an answer.
func idOf(a answer) int64 {
	p, err := gitlab.ParsePayload(a.body)
	if err != nil {
		panic(err)
	}
	return p.ID
}

func countContaining(r *record, part string) (n int) {
	for _, line := range r.all() {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}
