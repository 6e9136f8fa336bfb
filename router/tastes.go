package router

import (
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

// Bounds of what is remembered for the choice of machines.
const (
	maxHistories = 4096 // pairs of a pool and a job's name
	maxWarm      = 4096 // affinities
	warmMachines = 4    // that ran jobs of one affinity, the latest
	// historyShare is how much of a mean is the newest duration: the last ten or so
	// tell of a pool how it is now.
	historyShare = 0.25
)

// tastes is what makes one free place better than another.
type tastes struct {
	durations recent[history, float64] // decayed means [s]
	warm      recent[affinity, []spillway.MachineID]
}

// history names what is measured.
type history struct{ pool, job string }

func newTastes() tastes {
	return tastes{
		durations: newRecent[history, float64](maxHistories),
		warm:      newRecent[affinity, []spillway.MachineID](maxWarm),
	}
}

// affinity is what good machines for a job have run before: jobs of its word, or where
// it has none, of its project. The zero value is nothing.
type affinity struct {
	word    string
	project int64
}

func affinityOf(job *spillway.Job) affinity {
	if job.Affinity != "" {
		return affinity{word: job.Affinity}
	}
	return affinity{project: job.Requirement.Project}
}

// ran notes that a machine was given a job of an affinity.
func (t *tastes) ran(a affinity, id spillway.MachineID) {
	if a == (affinity{}) {
		return
	}
	list, _ := t.warm.get(a)
	if len(list) > 0 && list[0] == id {
		t.warm.put(a, list)
		return
	}
	list = slices.DeleteFunc(slices.Clone(list), func(o spillway.MachineID) bool { return o == id })
	list = slices.Insert(list, 0, id)
	t.warm.put(a, list[:min(len(list), warmMachines)])
}

// took notes how long a job took.
func (t *tastes) took(h *hold, now time.Time) {
	if h.name == "" || h.begunAt.IsZero() || h.machine.pool == nil {
		return
	}
	of := history{h.machine.Pool, h.name}
	took := now.Sub(h.begunAt).Seconds()
	if mean, known := t.durations.get(of); known {
		took = mean + historyShare*(took-mean)
	}
	t.durations.put(of, took)
}

// recent remembers a bounded number of values: those that were put last.
type recent[K comparable, V any] struct {
	most  int
	byKey map[K]*memory[K, V]
	order fifo[*memory[K, V]]
	puts  uint64 // ever
	told  uint64 // of these, the others know
}

type memory[K comparable, V any] struct {
	key   K
	value V
	at    uint64 // which put it was
	heard bool   // of others
	place link[*memory[K, V]]
}

func newRecent[K comparable, V any](most int) recent[K, V] {
	return recent[K, V]{most: most, byKey: make(map[K]*memory[K, V])}
}

func (r *recent[K, V]) get(key K) (value V, known bool) {
	if m := r.byKey[key]; m != nil {
		return m.value, true
	}
	return value, false
}

func (r *recent[K, V]) put(key K, value V) {
	m := r.byKey[key]
	if m == nil {
		if len(r.byKey) >= r.most {
			oldest := r.order.first.value
			r.order.remove(&oldest.place)
			delete(r.byKey, oldest.key)
		}
		m = &memory[K, V]{key: key}
		m.place.value = m
		r.byKey[key] = m
	}
	r.puts++
	m.value, m.at, m.heard = value, r.puts, false
	r.order.push(&m.place)
}
