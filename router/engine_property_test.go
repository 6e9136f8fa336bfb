package router_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// The engine against the model, over every order of events that rapid comes up
// with. What is held at each step:
//
//   - I10: a job is on at most one machine, and on the one that was told so;
//   - no machine is given more than it can hold, and one that drains, stops, is
//     silent, gone, or has just refused such a job is given nothing;
//   - I11: no job goes to a pool while one of higher priority that can take it
//     keeps a place free;
//   - no job is left waiting for which there is a place, and no place is promised twice;
//   - the most recently used machine of a pool goes first;
//   - reports of others and of older attempts change nothing.
func TestEngineAgreesWithTheModel(t *testing.T) {
	tally := make(map[string]int)
	for range 10 { // rapid's default of a hundred runs is few for so many events
		rapid.Check(t, func(t *rapid.T) { playSession(t, tally) })
	}
	for _, must := range []string{"assigned", "given back", "requeued", "spilled over", "refused", "expired", "full"} {
		require.Positive(t, tally[must], "%s never happened: the property was not tested", must)
	}
}

func playSession(t *rapid.T, tally map[string]int) {
	s := newSession(t, tally)
	t.Repeat(map[string]func(*rapid.T){
		"connect":    s.connect,
		"disconnect": s.disconnect,
		"forget":     s.forget,
		"heartbeat":  s.heartbeat,
		"order":      s.order,
		"ack":        s.ack,
		"push":       s.push,
		"work":       s.work,
		"work more":  s.work,
		"work hard":  s.work,
		"picture":    s.picture,
		"plan":       s.plan,
		"answer":     s.answer,
		"report too": s.report,
		"report":     s.report,
		"foreign":    s.foreignReport,
		"expire":     s.expire,
		"wait":       s.wait,
		"reload":     s.reload,
		"":           s.check,
	})
}

type session struct {
	fleet
	engine *router.Engine
	tally  map[string]int
	seq    int
}

func newSession(t *rapid.T, tally map[string]int) *session {
	s := &session{tally: tally}
	s.now = dawn
	s.machines = make(map[spillway.MachineID]*twin)
	s.queue = make(map[spillway.JobClass]*line)
	s.attempts = make(map[spillway.JobID]int)
	s.released = make(map[spillway.JobClass][]spillway.JobID)
	s.pools = drawPools(t)
	for _, r := range requirements() {
		s.queue[r.Class()] = &line{requirement: r}
	}
	s.engine = router.NewEngine(s.pools, router.Options{})
	for n := range 4 {
		s.connectNth(t, n)
	}
	return s
}

func (s *session) drawMachine(t *rapid.T) *twin {
	list := s.sorted()
	if len(list) == 0 {
		t.Skip("no machine")
	}
	return rapid.SampledFrom(list).Draw(t, "machine")
}

func (s *session) drawClass(t *rapid.T) *line {
	r := rapid.SampledFrom(requirements()).Draw(t, "class")
	return s.queue[r.Class()]
}

func (s *session) hear(m *twin) { m.heardAt = s.now }

func (s *session) connect(t *rapid.T) {
	s.connectNth(t, rapid.IntRange(0, 4).Draw(t, "machine"))
}

func (s *session) connectNth(t *rapid.T, n int) {
	id := spillway.MachineID(fmt.Sprintf("m%d", n))
	m := s.machines[id]
	if m == nil {
		m = &twin{
			id: id, pool: fmt.Sprintf("p%d", n%3), lastUsed: s.now,
			holds: make(map[router.JobRef]*twinHold), refused: make(map[spillway.JobClass]time.Time),
		}
		s.machines[id] = m
	}
	m.capacity = rapid.IntRange(0, 3).Draw(t, "capacity")
	running := drawSubset(t, m.refs())
	for _, h := range m.holds {
		h.counted, h.due = false, s.now.Add(router.DefaultTimeouts().Assigned)
	}
	s.confirm(m, running)
	m.busy = len(running)
	m.connected, m.stopped, m.full = true, false, false
	s.hear(m)
	require.Empty(t, s.engine.Connect(s.now, router.Machine{ID: id, Pool: m.pool, Capacity: m.capacity}, running))
}

// confirm notes that m said that it has these.
func (s *session) confirm(m *twin, running []router.JobRef) {
	for _, ref := range running {
		*m.holds[ref] = twinHold{counted: true, begun: true}
	}
}

func (s *session) disconnect(t *rapid.T) {
	m := s.drawMachine(t)
	m.connected = false
	require.True(t, s.engine.Disconnect(s.now, m.id))
}

func (s *session) forget(t *rapid.T) {
	m := s.drawMachine(t)
	delete(s.machines, m.id)
	lost := s.engine.Forget(s.now, m.id)
	require.ElementsMatch(t, m.refs(), lost)
	for _, ref := range lost {
		s.giveBack(ref)
	}
}

// giveBack is the shell: it releases the attempt and says so. The engine has
// forgotten a class that is no longer in the picture; such a job comes with the
// next one.
func (s *session) giveBack(ref router.JobRef) {
	s.released[ref.Class] = append(s.released[ref.Class], ref.ID)
	if s.engine.Requeued(ref) {
		s.queue[ref.Class].pending++
		s.tally["requeued"]++
	}
}

func (s *session) heartbeat(t *rapid.T) {
	m := s.drawMachine(t)
	running := drawSubset(t, m.refs())
	for _, h := range m.holds {
		h.counted = false
	}
	s.confirm(m, running)
	foreign := rapid.IntRange(0, 1).Draw(t, "foreign")
	if foreign > 0 || m.foreign > 0 {
		m.lastUsed = s.now
	}
	m.busy, m.foreign = len(running)+foreign, foreign
	m.full = false
	draining := m.draining || rapid.IntRange(0, 5).Draw(t, "stopping") == 0
	m.stopped = draining && (m.stopped || !m.draining)
	s.hear(m)
	require.True(t, s.engine.Heartbeat(s.now, m.id, m.busy, draining, running))
}

func (s *session) order(t *rapid.T) {
	m := s.drawMachine(t)
	m.draining = rapid.Bool().Draw(t, "on")
	require.True(t, s.engine.Order(s.now, m.id, m.draining))
}

func (s *session) ack(t *rapid.T) {
	m := s.drawMachine(t)
	draining := rapid.Bool().Draw(t, "draining")
	if !draining {
		m.stopped = false
	}
	s.hear(m)
	require.True(t, s.engine.DrainAck(s.now, m.id, draining))
	got, _ := s.engine.Machine(m.id)
	if !m.draining {
		require.Zero(t, got.DrainAckedAt)
	} else if draining {
		require.NotZero(t, got.DrainAckedAt)
	}
}

func (s *session) push(t *rapid.T) {
	l := s.drawClass(t)
	n := rapid.IntRange(1, 4).Draw(t, "jobs")
	l.pending += n
	s.engine.AddPending(router.ClassCount{Class: l.requirement.Class(), Requirement: l.requirement, Pending: n, Oldest: s.now})
}

func (s *session) picture(t *rapid.T) {
	var counts []router.ClassCount
	for _, r := range requirements() {
		n := rapid.IntRange(0, 5).Draw(t, "pending")
		s.queue[r.Class()].pending = n
		counts = append(counts, router.ClassCount{Class: r.Class(), Requirement: r, Pending: n, Oldest: s.now})
	}
	s.engine.SetCounts(counts)
}

func (s *session) plan(t *rapid.T) {
	wants := s.engine.Plan(s.now)
	if len(wants) > 0 {
		s.wanted = append(s.wanted, wants)
	}
	seen := make(map[router.ClaimWant]bool)
	for _, w := range wants {
		p := s.pool(w.Pool)
		require.NotNil(t, p)
		require.Positive(t, w.N)
		require.True(t, router.Match(&p.Capability, &s.queue[w.Class].requirement).OK())
		require.GreaterOrEqual(t, s.waiting(w.Class), 0, "more jobs wanted than there are")
		free, _ := s.room(w.Pool, w.Class)
		require.GreaterOrEqual(t, free, 0, "a place was promised twice")
		w.N = 0
		require.False(t, seen[w], "one want for a class and pool")
		seen[w] = true
		s.requireNoBetterPool(t, p, w.Class)
	}
	for class := range s.queue {
		for i := range s.pools {
			require.False(t, s.waiting(class) > 0 && s.takesMore(&s.pools[i], class),
				"%s has a place for a job that is left waiting", s.pools[i].Name)
		}
	}
}

// requireNoBetterPool is I11.
func (s *session) requireNoBetterPool(t *rapid.T, p *spillway.Pool, class spillway.JobClass) {
	for i := range s.pools {
		if q := &s.pools[i]; q.Priority < p.Priority {
			require.False(t, s.takesMore(q, class), "%s is used while %s has a place", p.Name, q.Name)
			if router.Match(&q.Capability, &s.queue[class].requirement).OK() {
				s.tally["spilled over"]++
			}
		}
	}
}

// work takes jobs all the way to machines.
func (s *session) work(t *rapid.T) {
	s.now = s.now.Add(time.Millisecond)
	s.push(t)
	s.plan(t)
	for len(s.wanted) > 0 {
		s.answer(t)
	}
}

// answer is the queue: it has some of what one of the claims wanted.
func (s *session) answer(t *rapid.T) {
	if len(s.wanted) == 0 {
		t.Skip("no claim under way")
	}
	i := rapid.IntRange(0, len(s.wanted)-1).Draw(t, "claim")
	wants := s.wanted[i]
	s.wanted = append(s.wanted[:i:i], s.wanted[i+1:]...)
	var got []router.Claimed
	for _, w := range wants {
		less := rapid.IntRange(0, 2*w.N).Draw(t, "less")
		for range w.N - max(0, less-w.N) {
			got = append(got, s.take(w))
		}
		l := s.queue[w.Class]
		l.pending = max(0, l.pending-w.N)
	}
	assigned, back := s.engine.Claimed(s.now, wants, got)
	require.Len(t, got, len(assigned)+len(back))
	for _, g := range got {
		m := s.best(g.Pool, g.Ref.Class)
		p := s.pool(g.Pool)
		if m == nil || !router.Match(&p.Capability, &g.Job.Requirement).OK() {
			require.Contains(t, back, g.Ref)
			s.giveBack(g.Ref)
			s.tally["given back"]++
			continue
		}
		require.NotEmpty(t, assigned)
		require.Equal(t, router.Assignment{Machine: m.id, Job: g.Job, Ref: g.Ref}, assigned[0])
		assigned = assigned[1:]
		m.holds[g.Ref] = &twinHold{due: s.now.Add(router.DefaultTimeouts().Assigned)}
		m.lastUsed = s.now
		s.tally["assigned"]++
	}
}

// take claims a job for w: one that was released, or a new one.
func (s *session) take(w router.ClaimWant) router.Claimed {
	var id spillway.JobID
	if back := s.released[w.Class]; len(back) > 0 {
		id, s.released[w.Class] = back[0], back[1:]
	} else {
		s.seq++
		id = spillway.JobID(fmt.Sprintf("j%03d", s.seq))
	}
	s.attempts[id]++
	return router.Claimed{
		Job:  spillway.Job{ID: id, Requirement: s.queue[w.Class].requirement},
		Ref:  router.JobRef{ID: id, Class: w.Class, Attempt: s.attempts[id]},
		Pool: w.Pool,
	}
}

func (s *session) drawPlaced(t *rapid.T) placed {
	list := s.all()
	if len(list) == 0 {
		t.Skip("no job on any machine")
	}
	return rapid.SampledFrom(list).Draw(t, "job")
}

func (s *session) report(t *rapid.T) {
	p := s.drawPlaced(t)
	s.hear(p.on)
	bare := router.JobRef{ID: p.ref.ID, Attempt: p.ref.Attempt} // a machine knows no classes
	switch rapid.SampledFrom([]string{"accepted", "started", "finished", "refused", "full"}).Draw(t, "report") {
	case "accepted":
		require.True(t, s.engine.Accepted(s.now, p.on.id, bare))
		p.on.holds[p.ref].begun, p.on.holds[p.ref].due = true, time.Time{}
	case "started":
		require.True(t, s.engine.Started(s.now, p.on.id, bare))
		p.on.holds[p.ref].begun, p.on.holds[p.ref].due = true, time.Time{}
	case "finished":
		require.True(t, s.engine.Finished(s.now, p.on.id, bare))
		p.on.end(p.ref)
		p.on.lastUsed = s.now
	case "refused":
		s.refuse(t, p, bare, false)
	case "full":
		s.refuse(t, p, bare, true)
		s.tally["full"]++
	}
}

func (s *session) refuse(t *rapid.T, p placed, bare router.JobRef, full bool) {
	require.True(t, s.engine.Refused(s.now, p.on.id, bare, full))
	p.on.end(p.ref)
	p.on.refused[p.ref.Class] = s.now.Add(router.DefaultRefusalPause)
	p.on.full = p.on.full || full
	s.giveBack(p.ref)
	s.tally["refused"]++
}

func (s *session) foreignReport(t *rapid.T) {
	p := s.drawPlaced(t)
	on, ref := s.drawMachine(t), p.ref
	if on == p.on || rapid.Bool().Draw(t, "attempt") {
		ref.Attempt += rapid.SampledFrom([]int{-1, 1}).Draw(t, "by")
	}
	s.hear(on)
	require.False(t, s.engine.Accepted(s.now, on.id, ref))
	require.False(t, s.engine.Started(s.now, on.id, ref))
	require.False(t, s.engine.Finished(s.now, on.id, ref))
	require.False(t, s.engine.Refused(s.now, on.id, ref, true))
}

func (s *session) expire(t *rapid.T) {
	var wantRelease, wantLost []router.JobRef
	for _, p := range s.all() {
		h := p.on.holds[p.ref]
		if h.due.IsZero() || s.now.Before(h.due) {
			continue
		}
		if h.begun {
			wantLost = append(wantLost, p.ref)
		} else {
			wantRelease = append(wantRelease, p.ref)
		}
		delete(p.on.holds, p.ref)
		p.on.refused[p.ref.Class] = s.now.Add(router.DefaultRefusalPause)
	}
	release, lost := s.engine.Expire(s.now)
	require.ElementsMatch(t, wantRelease, release)
	require.ElementsMatch(t, wantLost, lost)
	for _, ref := range append(release, lost...) {
		s.giveBack(ref)
	}
	s.tally["expired"] += len(release)
	s.tally["lost"] += len(lost)
}

func (s *session) wait(t *rapid.T) {
	s.now = s.now.Add(rapid.SampledFrom([]time.Duration{
		time.Millisecond, 500 * time.Millisecond, router.DefaultRefusalPause, 10 * time.Second, 35 * time.Second,
	}).Draw(t, "for"))
}

func (s *session) reload(t *rapid.T) {
	s.pools = drawPools(t)
	s.engine.SetPools(s.pools)
}

// check compares the books after every step.
func (s *session) check(t *rapid.T) {
	on := make(map[spillway.JobID]spillway.MachineID)
	list := s.engine.Machines()
	require.Len(t, list, len(s.machines))
	for i, m := range s.sorted() {
		got := list[i]
		require.Equal(t, m.id, got.ID)
		require.Equal(t, len(m.holds), got.Assigned, m.id)
		require.Equal(t, m.busy, got.Busy, m.id)
		require.Equal(t, m.lastUsed, got.LastUsedAt, m.id)
		require.Equal(t, m.draining, got.Draining, m.id)
		require.Equal(t, m.stopped, !got.StoppingSince.IsZero(), m.id)
		held := s.engine.Held(m.id)
		require.ElementsMatch(t, m.refs(), held)
		for _, ref := range held {
			require.NotContains(t, on, ref.ID, "on two machines")
			on[ref.ID] = m.id
			gotRef, holder, ok := s.engine.Holder(ref.ID)
			require.True(t, ok)
			require.Equal(t, placed{m, ref}.ref, gotRef)
			require.Equal(t, m.id, holder)
		}
	}
}
