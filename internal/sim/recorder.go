package sim

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/internal/scenario"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// recorder writes down what happens.
type recorder struct {
	world     *world
	jobs      map[spillway.JobID]*jobStory
	order     []*jobStory // by submission
	open      int         // submitted and not ended [jobs]
	orphans   int         // whose machine has died, and nobody has noticed [jobs]
	tally     map[spillway.JobState]int
	pools     map[string]*poolStory
	series    map[string]*series // jobs.…
	calls     []Call
	decisions []Decision
	unmatched map[spillway.JobClass]string // why no pool can take these; the last reason
	matched   map[spillway.JobClass]bool   // seen since with a pool that can
	busyKills int
	forced    int

	controllers map[string]*controllerStory
	peers       map[string]*peerStory
}

// peerStory is what became of the jobs that were handed over to one peer.
type peerStory struct {
	over, ended, back int // attempts
}

// controllerStory is what became of one admission controller.
type controllerStory struct {
	asked, allowed, refused int // jobs
}

// jobStory is what became of one job.
type jobStory struct {
	id        spillway.JobID
	at        time.Time // first submission
	state     spillway.JobState
	since     time.Time // in this state
	startedAt time.Time // of the first attempt
	class     spillway.JobClass
	orphan    bool
	failure   spillway.FailureReason // with Failed
	starts    int
	reviews   int // by controllers, each time that one was shown it
}

// poolStory is what became of one pool.
type poolStory struct {
	site       *site
	born       map[string]time.Time // instances that exist
	ever       []string             // every instance, by launch
	held       map[string]time.Time // of them: since when a terminating hook holds them
	leaves     map[string]bool      // somebody found them unhealthy, or said that they may be taken: they are not drained to come back
	launches   int
	removals   int
	calls      map[string]int
	maxLive    int
	used       time.Duration // by instances that have ended
	desired    series
	inService  series
	limitedBy  map[string]int
	registered int // runners that live
}

// series is a number over time, by its changes.
type series struct {
	points []point
}

type point struct {
	at time.Time
	n  int
}

func (s *series) set(now time.Time, n int) {
	if k := len(s.points); k > 0 {
		if s.points[k-1].n == n {
			return
		}
		if s.points[k-1].at.Equal(now) {
			s.points[k-1].n = n
			return
		}
	}
	s.points = append(s.points, point{now, n})
}

// at is the number at t: past the end the last one, before the beginning 0.
func (s *series) at(t time.Time) int {
	n := 0
	for _, p := range s.points {
		if p.at.After(t) {
			break
		}
		n = p.n
	}
	return n
}

func newRecorder(w *world) *recorder {
	return &recorder{
		world: w, jobs: make(map[spillway.JobID]*jobStory), tally: make(map[spillway.JobState]int),
		pools:     make(map[string]*poolStory),
		unmatched: make(map[spillway.JobClass]string), matched: make(map[spillway.JobClass]bool),
		series:      map[string]*series{"completed": {}, "pending": {}, "running": {}},
		controllers: make(map[string]*controllerStory),
		peers:       make(map[string]*peerStory),
	}
}

// handed is the story of one peer.
func (rec *recorder) handed(peer string) *peerStory {
	p := rec.peers[peer]
	if p == nil {
		p = &peerStory{}
		rec.peers[peer] = p
	}
	return p
}

// gone notes that a job of another cell is no more, though the store never said how it
// has ended: that has lost it, or was never told of it.
func (rec *recorder) gone(id spillway.JobID) {
	j := rec.jobs[id]
	if j == nil || j.state.Terminal() || rec.world.running[id] != nil {
		return
	}
	rec.tally[j.state]--
	rec.tally[spillway.Canceled]++
	j.state, j.since = spillway.Canceled, rec.world.now
	if j.orphan {
		j.orphan = false
		rec.orphans--
	}
	rec.open--
}

// controller is the story of one admission controller.
func (rec *recorder) controller(name string) *controllerStory {
	c := rec.controllers[name]
	if c == nil {
		c = &controllerStory{}
		rec.controllers[name] = c
	}
	return c
}

// verdict notes one that counted.
func (rec *recorder) verdict(v *admission.VerdictInfo) {
	if c := rec.controller(v.Controller); v.Allow {
		c.allowed++
	} else {
		c.refused++
	}
}

// reviewedOnce notes that a controller was shown a job.
func (rec *recorder) reviewedOnce(id spillway.JobID) {
	if j := rec.jobs[id]; j != nil {
		j.reviews++
	}
}

// waiting counts the jobs that wait for a machine, approved or not.
func (rec *recorder) waiting() int {
	return rec.tally[spillway.Pending] + rec.tally[spillway.Routing] + rec.tally[spillway.Admitted]
}

func (rec *recorder) addPool(s *site) {
	rec.pools[s.pool] = &poolStory{
		site: s, born: make(map[string]time.Time), held: make(map[string]time.Time), leaves: make(map[string]bool), calls: make(map[string]int), limitedBy: make(map[string]int),
		launches: -s.cloud.Live(), // those in service at the start were launched by nobody
	}
}

func (rec *recorder) instanceLaunched(pool, id string, at time.Time) {
	p := rec.pools[pool]
	p.launches++
	p.ever = append(p.ever, id)
	p.born[id] = at
	p.maxLive = max(p.maxLive, len(p.born))
}

func (rec *recorder) instanceEnded(pool string, ch Change) {
	p := rec.pools[pool]
	p.used += ch.At.Sub(p.born[ch.ID])
	delete(p.born, ch.ID)
	delete(p.held, ch.ID)
	if ch.Cause == ByName {
		p.removals++
	}
}

func (rec *recorder) instanceGone(pool, id string) bool {
	_, exists := rec.pools[pool].born[id]
	return !exists
}

func (rec *recorder) jobSubmitted(job *scenario.Job) {
	j := &jobStory{
		id: job.Job.ID, class: job.Job.Requirement.Class(), at: rec.world.now, since: rec.world.now, state: spillway.Pending,
	}
	rec.jobs[j.id] = j
	rec.order = append(rec.order, j)
	rec.tally[j.state]++
	rec.open++
}

// orphaned notes that a job's machine has died.
func (rec *recorder) orphaned(id spillway.JobID) {
	if j := rec.jobs[id]; !j.orphan && !j.state.Terminal() {
		j.orphan = true
		rec.orphans++
	}
}

func (rec *recorder) known(id spillway.JobID) bool { return rec.jobs[id] != nil }

func (rec *recorder) ended(id spillway.JobID) bool {
	j := rec.jobs[id]
	return j != nil && j.state.Terminal()
}

// jobChanged is told each new state of a job by the store.
func (rec *recorder) jobChanged(r spillway.JobRecord) {
	j := rec.jobs[r.Job.ID]
	if !rec.world.rules.jobChanged(j, r.State) {
		return // it has ended before: a violation, not a change
	}
	if j.state == r.State {
		return
	}
	rec.tally[j.state]--
	rec.tally[r.State]++
	j.state, j.since = r.State, rec.world.now
	if j.orphan {
		j.orphan = false
		rec.orphans--
	}
	if r.State == spillway.Running {
		j.starts++
	}
	switch {
	case r.State == spillway.Running && j.startedAt.IsZero():
		j.startedAt = rec.world.now
	case r.State.Terminal():
		j.failure = r.Result.Reason
		rec.open--
	}
}

// looked notes which jobs no pool can take.
func (rec *recorder) looked(pic *scaler.Picture) {
	if pic.Demand != policy.Whole {
		return
	}
	for i := range pic.Classes {
		rec.matched[pic.Classes[i].ID] = true
	}
	for _, u := range pic.Attribution.Unmatched {
		class := pic.Classes[u.Class].ID
		rec.unmatched[class], rec.matched[class] = u.Predicate, false
	}
}

// whyUnmatched is why no pool can take a job that waits, or could until it had
// waited for too long; empty = one can.
func (rec *recorder) whyUnmatched(j *jobStory) string {
	waits := !j.state.Terminal() && !rec.matched[j.class]
	if waits || j.failure == spillway.Unmatched {
		return rec.unmatched[j.class]
	}
	return ""
}

// sample writes down what the moment has changed.
func (rec *recorder) sample() {
	now := rec.world.now
	for _, s := range rec.world.clouds {
		p := rec.pools[s.pool]
		p.desired.set(now, s.cloud.Desired())
		p.inService.set(now, p.registered)
	}
	rec.series["completed"].set(now, rec.tally[spillway.Completed])
	rec.series["pending"].set(now, rec.waiting())
	rec.series["running"].set(now, rec.tally[spillway.Running]+rec.tally[spillway.Assigned])
}

// events narrates what the loops do, whoever's they are.
func (rec *recorder) events() *scaler.Events {
	return &scaler.Events{
		Called: func(c scaler.CallInfo) {
			result := "ok"
			if c.Err != nil {
				result = c.Err.Error()
			}
			p := rec.pools[c.Pool]
			p.calls[c.Op]++
			rec.calls = append(rec.calls, Call{T: rec.seconds(rec.world.now), Pool: c.Pool, Op: c.Op, Args: c.Args, Result: result})
			rec.world.rules.called(c)
		},
		Decided: func(e scaler.LedgerEntry) {
			if e.LimitedBy != "" {
				rec.pools[e.Pool].limitedBy[string(e.LimitedBy)]++
			}
			rec.decisions = append(rec.decisions, Decision{
				T: rec.seconds(rec.world.now), Pool: e.Pool, From: e.From, To: e.To,
				Reason: string(e.Reason), LimitedBy: string(e.LimitedBy), Action: e.Action, Result: e.Result, Trace: e.Trace,
			})
		},
		Trouble: func(t scaler.TroubleInfo) { rec.world.rules.trouble(t.Pool, pluginsdk.KindOf(t.Err)) },
	}
}

// seconds is a time of the story [s], to the millisecond.
func (rec *recorder) seconds(t time.Time) Seconds {
	return Seconds(math.Round(t.Sub(epoch).Seconds()*1000) / 1000)
}

// waits are the queue waits of the jobs that have started, the shortest first.
func (rec *recorder) waits() []time.Duration {
	var waits []time.Duration
	for _, j := range rec.order {
		if !j.startedAt.IsZero() {
			waits = append(waits, j.startedAt.Sub(j.at))
		}
	}
	slices.SortFunc(waits, cmp.Compare)
	return waits
}

// Seconds is a time or a duration [s]; it prints without an exponent.
type Seconds float64

// MarshalJSON implements json.Marshaler.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(s), 'f', -1, 64), nil
}
