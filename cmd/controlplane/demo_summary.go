package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spillway-ci/spillway"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/scaler/roster"
)

// summary is what the demo ends with; its JSON form is `demo -o json`.
type summary struct {
	Jobs struct {
		Completed int `json:"completed"`
		Failed    int `json:"failed"` // without the timed out
		TimedOut  int `json:"timed_out"`
		Unmatched int `json:"unmatched"`
	} `json:"jobs"`
	WaitMS     quantiles95    `json:"wait_ms"`
	ReactionMS quantiles99    `json:"reaction_ms"`
	Instances  instances      `json:"instances"`
	BusyKills  int            `json:"busy_kills"`
	Final      map[string]int `json:"final_desired"`
	Decisions  []decision     `json:"decisions"`
}

type quantiles95 struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
}

type quantiles99 struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

type instances struct {
	Launched int     `json:"launched"`
	Removed  int     `json:"removed"`
	Seconds  float64 `json:"seconds"`
}

// decision is one scale-out or scale-in.
type decision struct {
	AtMS      int64            `json:"at_ms"` // since the push
	Pool      string           `json:"pool"`
	From      int              `json:"from"`
	To        int              `json:"to"`
	Direction policy.Direction `json:"direction"`
	Reason    policy.Reason    `json:"reason"`
	Action    string           `json:"action"`
	Result    string           `json:"result"`
}

// tally adds up what the control plane tells while the demo runs. Its methods are
// called from the control plane's goroutines.
type tally struct {
	mu struct {
		sync.Mutex
		began     time.Time
		reactions []time.Duration
		decisions []decision
		launched  int
		live      map[string]time.Time // instance → when it was first seen
		removedBy map[string]bool      // instances that were removed by us
		removed   int
		seconds   float64
		lostOn    []spillway.MachineID // machines that were lost with a job
		instance  map[spillway.MachineID]string
	}
}

func newTally() *tally {
	t := &tally{}
	t.mu.live, t.mu.removedBy, t.mu.instance = map[string]time.Time{}, map[string]bool{}, map[spillway.MachineID]string{}
	return t
}

// begin says when the jobs were pushed.
func (t *tally) begin(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.began = at
}

func (t *tally) decided(e scaler.LedgerEntry) {
	if e.Action == "" || e.Direction == policy.None {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.decisions = append(t.mu.decisions, decision{
		AtMS: e.At.Sub(t.mu.began).Milliseconds(), Pool: e.Pool, From: e.From, To: e.To,
		Direction: e.Direction, Reason: e.Reason, Action: e.Action, Result: e.Result,
	})
}

func (t *tally) called(c scaler.CallInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Op == "set_desired" && c.Err == nil && !c.OldestJob.IsZero() {
		t.mu.reactions = append(t.mu.reactions, c.Sent.Sub(c.OldestJob))
	}
	for _, id := range c.Removed {
		t.mu.removed++
		t.mu.removedBy[id] = true
		t.end(id, c.Sent)
	}
}

func (t *tally) changed(c scaler.ChangeInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch c.Kind {
	case roster.Appeared:
		t.mu.launched++
		t.mu.live[c.Instance] = c.At
	case roster.Gone, roster.GoneForeign:
		t.end(c.Instance, c.At)
	default:
	}
}

// end adds an instance's time, once. The lock is held.
func (t *tally) end(instance string, at time.Time) {
	if began, ok := t.mu.live[instance]; ok {
		t.mu.seconds += at.Sub(began).Seconds()
		delete(t.mu.live, instance)
	}
}

func (t *tally) connected(e session.MachineConnected) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.instance[e.Machine] = e.Instance
}

func (t *tally) lost(e session.JobLost) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.lostOn = append(t.mu.lostOn, e.Machine)
}

// summarize closes the books.
func (t *tally) summarize(now time.Time, records []*typesv1.JobRecord, final map[string]int) *summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.mu.live {
		t.end(id, now)
	}
	s := &summary{Final: final, Decisions: slices.Clone(t.mu.decisions)}
	if s.Decisions == nil {
		s.Decisions = []decision{}
	}
	var waits []time.Duration
	for i := range records {
		s.count(records[i])
		if at := records[i].GetStartedAt(); at != nil {
			waits = append(waits, at.AsTime().Sub(records[i].GetJob().GetSubmittedAt().AsTime()))
		}
	}
	s.WaitMS = quantiles95{quantile(waits, 0.5), quantile(waits, 0.95)}
	s.ReactionMS = quantiles99{quantile(t.mu.reactions, 0.5), quantile(t.mu.reactions, 0.99)}
	s.Instances = instances{Launched: t.mu.launched, Removed: t.mu.removed, Seconds: t.mu.seconds}
	for _, m := range t.mu.lostOn {
		if t.mu.removedBy[t.mu.instance[m]] {
			s.BusyKills++
		}
	}
	return s
}

func (s *summary) count(r *typesv1.JobRecord) {
	switch reason := spillway.FailureReason(r.GetResult().GetReason()); {
	case r.GetState() == typesv1.JobState_JOB_STATE_COMPLETED:
		s.Jobs.Completed++
	case reason == spillway.JobExecutionTimeout:
		s.Jobs.TimedOut++
	case reason == spillway.Unmatched:
		s.Jobs.Unmatched++
	default:
		s.Jobs.Failed++
	}
}

// quantile is the nearest-rank quantile of d in milliseconds, 0 for none.
func quantile(d []time.Duration, q float64) float64 {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	i := min(len(d)-1, int(q*float64(len(d))))
	return float64(d[i].Microseconds()) / 1000
}

func (s *summary) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	return enc.Encode(s)
}

func (s *summary) writeText(w io.Writer) error {
	fmt.Fprintf(w, "\nJobs        %d completed, %d failed, %d timed out, %d that no pool can take\n",
		s.Jobs.Completed, s.Jobs.Failed, s.Jobs.TimedOut, s.Jobs.Unmatched)
	fmt.Fprintf(w, "Queue wait  p50 %.0f ms, p95 %.0f ms (submitted → started)\n", s.WaitMS.P50, s.WaitMS.P95)
	fmt.Fprintf(w, "Reaction    p50 %.1f ms, p99 %.1f ms (submitted → provider called)\n", s.ReactionMS.P50, s.ReactionMS.P99)
	fmt.Fprintf(w, "Instances   %d launched, %d removed, %.1f instance-seconds, %d busy ones ended\n\n",
		s.Instances.Launched, s.Instances.Removed, s.Instances.Seconds, s.BusyKills)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "AT\tPOOL\tINSTANCES\tWHY\tDONE")
	for _, d := range s.Decisions {
		fmt.Fprintf(tw, "%.2fs\t%s\t%d → %d\t%s\t%s\n", float64(d.AtMS)/1000, d.Pool, d.From, d.To, d.Reason, d.outcome())
	}
	return tw.Flush()
}

// maxActionText bounds what of an action one line of the table shows [bytes].
const maxActionText = 90

func (d *decision) outcome() string {
	s := d.Action
	if len(s) > maxActionText {
		s = s[:maxActionText] + "…"
	}
	if d.Result != "ok" {
		s += ": " + d.Result
	}
	return s
}
