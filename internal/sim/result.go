package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/scaler/policy"
)

// The exit statuses of a run.
const (
	ExitOK       = 0
	ExitExpect   = 1 // an expectation is false
	ExitViolated = 2 // an invariant did not hold
)

// Result is how a story went. Its JSON is the same, byte for byte, for the same
// scenario and seed. Times are seconds of the story.
type Result struct {
	Seed        uint64                `json:"seed"`
	Duration    Seconds               `json:"duration_s"` // that was played
	Jobs        Jobs                  `json:"jobs"`
	BusyKills   int                   `json:"busy_kills"`
	ForcedKills int                   `json:"forced_kills"` // busy instances that others ended
	Pools       map[string]PoolResult `json:"pools"`
	Calls       []Call                `json:"calls"`
	Decisions   []Decision            `json:"decisions"`
	Unmatched   map[string]int        `json:"unmatched"`  // jobs by reason
	Invariants  map[string]int        `json:"invariants"` // violations
	Violations  []Violation           `json:"violations,omitempty"`
	Handed      map[string]Handed     `json:"handed,omitempty"`      // to other cells, by cell
	Cells       map[string]*Result    `json:"cells,omitempty"`       // the other cells
	Failures    map[string]int        `json:"failures,omitempty"`    // jobs that failed or were refused, by reason
	Controllers map[string]Reviews    `json:"controllers,omitempty"` // of admission
	Expect      []Expected            `json:"expect,omitempty"`

	rec *recorder
}

// Jobs counts them by how they ended, and the rest by where they are.
type Jobs struct {
	Submitted int  `json:"submitted"`
	Completed int  `json:"completed"`
	Failed    int  `json:"failed"`
	Rejected  int  `json:"rejected"`
	Canceled  int  `json:"canceled"`
	Pending   int  `json:"pending"`
	Running   int  `json:"running"`
	Unmatched int  `json:"unmatched"` // of Pending and Failed: no pool can take them
	Wait      Wait `json:"wait_s"`    // from submission to the first start
}

// Handed is what became of the jobs that were handed over to another cell [attempts].
type Handed struct {
	Over  int `json:"over"`
	Ended int `json:"ended"` // there, by themselves
	Back  int `json:"back"`  // they came back: not begun, or lost
}

// Reviews is what an admission controller did [jobs].
type Reviews struct {
	Asked   int `json:"asked"` // that its instances were shown, some more than once
	Allowed int `json:"allowed"`
	Refused int `json:"refused"`
}

// Wait is quantiles of the time in the queue.
type Wait struct {
	P50 Seconds `json:"p50"`
	P95 Seconds `json:"p95"`
	Max Seconds `json:"max"`
}

// PoolResult is one pool.
type PoolResult struct {
	Launches        int            `json:"launches"`
	Removals        int            `json:"removals"`    // by name
	ScaleCalls      int            `json:"scale_calls"` // set_desired, remove and withdraw, sent
	MaxLive         int            `json:"max_live"`    // instances that existed at one time
	InstanceSeconds Seconds        `json:"instance_seconds"`
	Cost            float64        `json:"cost"`
	Desired         []Point        `json:"desired"`    // the group's own number
	InService       []Point        `json:"in_service"` // registered instances
	LimitedBy       map[string]int `json:"limited_by"` // decisions by the rule that limited them
}

// Point is a number from a time on; it prints as [t, n].
type Point struct {
	T Seconds
	N int
}

// MarshalJSON implements json.Marshaler.
func (p Point) MarshalJSON() ([]byte, error) { return json.Marshal([2]any{p.T, p.N}) }

// Call is one write to a provider.
type Call struct {
	T      Seconds `json:"t"`
	Pool   string  `json:"pool"`
	Op     string  `json:"op"`
	Args   string  `json:"args"`
	Result string  `json:"result"`
}

// Decision is one entry of the ledger.
type Decision struct {
	T         Seconds        `json:"t"`
	Pool      string         `json:"pool"`
	From      int            `json:"from"`
	To        int            `json:"to"`
	Reason    string         `json:"reason"`
	LimitedBy string         `json:"limited_by,omitempty"`
	Action    string         `json:"action,omitempty"`
	Result    string         `json:"result,omitempty"`
	Trace     []policy.Trace `json:"trace"`
}

// Expected is one expectation and what was seen.
type Expected struct {
	Line int     `json:"line"`
	Text string  `json:"text"`
	OK   bool    `json:"ok"`
	Seen float64 `json:"seen"`

	outcome scenario.Outcome
}

// String is the outcome for people.
func (e Expected) String() string { return e.outcome.String() }

// ExitCode is the exit status of whoever ran the story.
func (r *Result) ExitCode() int {
	for _, n := range r.Invariants {
		if n > 0 {
			return ExitViolated
		}
	}
	if slices.ContainsFunc(r.Expect, func(e Expected) bool { return !e.OK }) {
		return ExitExpect
	}
	return ExitOK
}

// WriteJSON writes the whole result as one object on one line.
func WriteJSON(w io.Writer, r *Result) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// result adds everything up.
func (w *world) result() *Result {
	rec := w.rec
	rec.sample()
	r := &Result{
		Seed: w.story.Seed, Duration: rec.seconds(w.now),
		BusyKills: rec.busyKills, ForcedKills: rec.forced,
		Pools: make(map[string]PoolResult, len(rec.pools)),
		Calls: emptyNotNil(rec.calls), Decisions: emptyNotNil(rec.decisions),
		Unmatched: make(map[string]int), Invariants: make(map[string]int), Violations: w.rules.violations,
		rec: rec,
	}
	for _, name := range scenario.Invariants {
		r.Invariants[name] = w.rules.counts[name]
	}
	for _, j := range rec.order {
		if why := rec.whyUnmatched(j); why != "" {
			r.Unmatched[why]++
			r.Jobs.Unmatched++
		}
	}
	rec.countJobs(&r.Jobs)
	r.Failures, r.Controllers = rec.failures(), rec.reviews()
	for peer, p := range rec.peers {
		if r.Handed == nil {
			r.Handed = make(map[string]Handed)
		}
		r.Handed[peer] = Handed{Over: p.over, Ended: p.ended, Back: p.back}
	}
	for _, c := range w.all[min(1, len(w.all)):] {
		if r.Cells == nil {
			r.Cells = make(map[string]*Result)
		}
		r.Cells[c.cell()] = c.result()
	}
	for name, p := range rec.pools {
		r.Pools[name] = p.result(rec)
	}
	for _, e := range w.story.Expect {
		o := e.Check(r)
		r.Expect = append(r.Expect, Expected{Line: e.Line, Text: e.Text, OK: o.OK, Seen: o.Seen, outcome: o})
	}
	return r
}

func (rec *recorder) countJobs(j *Jobs) {
	t := rec.tally
	j.Submitted = len(rec.order)
	j.Completed, j.Failed, j.Rejected, j.Canceled = t[spillway.Completed], t[spillway.Failed], t[spillway.Rejected], t[spillway.Canceled]
	j.Pending, j.Running = rec.waiting(), t[spillway.Running]+t[spillway.Assigned]
	if waits := rec.waits(); len(waits) > 0 {
		j.Wait = Wait{P50: quantile(waits, 0.5), P95: quantile(waits, 0.95), Max: quantile(waits, 1)}
	}
}

// failures counts the jobs that ended otherwise than well, by reason.
func (rec *recorder) failures() map[string]int {
	var out map[string]int
	for _, j := range rec.order {
		if j.failure == "" {
			continue
		}
		if out == nil {
			out = make(map[string]int)
		}
		out[string(j.failure)]++
	}
	return out
}

// reviews is what the admission controllers did.
func (rec *recorder) reviews() map[string]Reviews {
	if len(rec.controllers) == 0 {
		return nil
	}
	out := make(map[string]Reviews, len(rec.controllers))
	for name, c := range rec.controllers {
		out[name] = Reviews{Asked: c.asked, Allowed: c.allowed, Refused: c.refused}
	}
	return out
}

// quantile is the smallest value that at least a share q of sorted is not above.
func quantile(sorted []time.Duration, q float64) Seconds {
	at := max(0, int(math.Ceil(q*float64(len(sorted))))-1)
	return Seconds(math.Round(sorted[at].Seconds()*1000) / 1000)
}

func (p *poolStory) result(rec *recorder) PoolResult {
	used := p.used
	for _, born := range p.born {
		used += rec.world.now.Sub(born)
	}
	scaleCalls := 0
	for _, op := range []string{"set_desired", "remove", "withdraw"} {
		scaleCalls += p.calls[op]
	}
	return PoolResult{
		Launches: p.launches, Removals: p.removals, ScaleCalls: scaleCalls, MaxLive: p.maxLive,
		InstanceSeconds: Seconds(math.Round(used.Seconds()*1000) / 1000),
		Cost:            math.Round(used.Hours()*p.site.cloud.PricePerHour()*1e6) / 1e6,
		Desired:         p.desired.result(rec), InService: p.inService.result(rec), LimitedBy: p.limitedBy,
	}
}

func (s *series) result(rec *recorder) []Point {
	points := make([]Point, 0, len(s.points))
	for _, p := range s.points {
		points = append(points, Point{rec.seconds(p.at), p.n})
	}
	return points
}

func emptyNotNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
