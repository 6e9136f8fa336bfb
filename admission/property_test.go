package admission_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/admission"
)

// walk is one replica with controllers that do anything, in any order, and a record of
// what they really said.
type walk struct {
	t       *rapid.T
	e       *admission.Engine
	chain   []string
	now     time.Time
	jobs    int
	next    admission.InstanceID
	of      map[admission.InstanceID]string // controller
	sent    map[string][]string             // "instance/batch" -> subjects without a verdict
	said    map[string]map[string]bool      // subject -> controller -> allow
	decided map[string]admission.Decision
}

// Whatever controllers do, each job comes to exactly one end; it is approved only if
// every controller of its chain has said yes, and rejected only if one said no.
func TestWhateverControllersDo(t *testing.T) {
	outcomes := map[admission.Outcome]int{}
	rapid.Check(t, func(rt *rapid.T) {
		w := &walk{
			t: rt, chain: []string{"first", "second", "third"}, now: t0, e: admission.NewEngine(t0, three(rt)),
			of: map[admission.InstanceID]string{}, sent: map[string][]string{}, said: map[string]map[string]bool{}, decided: map[string]admission.Decision{},
		}
		rt.Repeat(map[string]func(*rapid.T){
			"connect": w.connect, "disconnect": w.disconnect, "take": w.take, "answer": w.answer, "lie": w.lie, "wait": w.wait,
			"": func(*rapid.T) { w.plan() },
		})
		for range w.chain { // time alone brings everything to its end
			w.now = w.now.Add(time.Hour)
			w.plan()
		}
		require.Empty(rt, w.e.Held())
		require.Len(rt, w.decided, w.jobs)
		for _, d := range w.decided {
			outcomes[d.Outcome]++
		}
	})
	for _, o := range []admission.Outcome{admission.Approved, admission.Rejected, admission.TimedOut, admission.HandedOn} {
		require.Positive(t, outcomes[o], "outcome %d never came", o)
	}
}

func (w *walk) note(list []admission.Decision) {
	for _, d := range list {
		require.NotContains(w.t, w.decided, d.Subject, "a second end")
		w.decided[d.Subject] = d
		for i, name := range d.Approved {
			require.Equal(w.t, w.chain[i], name, "in the order of the chain")
			require.True(w.t, w.said[d.Subject][name], "%s never approved %s", name, d.Subject)
		}
		switch d.Outcome {
		case admission.Approved:
			require.Len(w.t, d.Approved, len(w.chain))
		case admission.Rejected:
			allow, answered := w.said[d.Subject][d.Controller]
			require.True(w.t, answered && !allow)
		default:
		}
	}
}

func (w *walk) plan() {
	decided, silent := w.e.Expire(w.now)
	w.note(decided)
	for _, id := range silent {
		w.end(id)
	}
	for _, b := range w.e.Plan(w.now) {
		key := fmt.Sprintf("%d/%d", b.Instance, b.ID)
		require.NotContains(w.t, w.sent, key)
		for _, s := range b.Subjects {
			w.sent[key] = append(w.sent[key], s.ID)
			require.NotContains(w.t, w.decided, s.ID, "nobody is asked of a job that has ended")
		}
	}
}

func (w *walk) end(id admission.InstanceID) {
	delete(w.of, id)
	for key := range w.sent {
		var of, batch int
		_, _ = fmt.Sscanf(key, "%d/%d", &of, &batch)
		if admission.InstanceID(of) == id {
			delete(w.sent, key)
		}
	}
	w.note(w.e.Disconnect(w.now, id))
}

func (w *walk) connect(t *rapid.T) {
	w.next++
	name := rapid.SampledFrom(w.chain).Draw(t, "controller")
	_, err := w.e.Connect(w.now, w.next, name, "i", rapid.IntRange(0, 3).Draw(t, "batch"))
	require.NoError(t, err)
	w.of[w.next] = name
}

func (w *walk) disconnect(t *rapid.T) {
	if len(w.of) == 0 {
		t.Skip("nobody is there")
	}
	w.end(rapid.SampledFrom(sorted(w.of)).Draw(t, "instance"))
}

func (w *walk) take(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "n") {
		w.jobs++
		id := fmt.Sprint(w.jobs)
		w.said[id] = map[string]bool{}
		w.note(w.e.Take(w.now, item(id, rapid.SampledFrom([]int{1, admission.MaxMoves}).Draw(t, "attempt"))))
	}
}

func (w *walk) answer(t *rapid.T) {
	if len(w.sent) == 0 {
		t.Skip("nobody was asked")
	}
	key := rapid.SampledFrom(sorted(w.sent)).Draw(t, "review")
	var id, batch int
	_, _ = fmt.Sscanf(key, "%d/%d", &id, &batch)
	n := rapid.IntRange(1, len(w.sent[key])).Draw(t, "verdicts")
	var list []admission.Verdict
	for _, s := range w.sent[key][:n] {
		v := admission.Verdict{Subject: s, Allow: rapid.IntRange(0, 5).Draw(t, "allow") > 0}
		if _, over := w.decided[s]; !over {
			w.said[s][w.of[admission.InstanceID(id)]] = v.Allow
		}
		list = append(list, v)
	}
	if w.sent[key] = w.sent[key][n:]; len(w.sent[key]) == 0 {
		delete(w.sent, key)
	}
	decided, _, err := w.e.Answer(w.now, admission.InstanceID(id), uint64(batch), list)
	require.NoError(t, err)
	w.note(decided)
}

func (w *walk) lie(t *rapid.T) {
	if len(w.of) == 0 {
		t.Skip("nobody is there")
	}
	id := rapid.SampledFrom(sorted(w.of)).Draw(t, "liar")
	held := w.e.Held()
	decided, infos, err := w.e.Answer(w.now, id, uint64(rapid.IntRange(0, 9).Draw(t, "batch")), yes("never", "1"))
	require.ErrorIs(t, err, admission.ErrLie)
	require.Empty(t, decided)
	require.Empty(t, infos)
	require.Equal(t, held, w.e.Held())
	w.end(id)
}

func (w *walk) wait(t *rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "tenths")) * 100 * time.Millisecond)
}

func sorted[K interface{ ~uint64 | ~string }, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
