package router

import (
	"iter"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

// MaxExperience bounds each kind of what one Experience carries [entries].
const MaxExperience = 1024

// Experience is what was learned of places for jobs: what replicas tell each other of it,
// and what outlives them.
type Experience struct {
	Durations []LearnedDuration
	Warm      []LearnedWarm
}

// Empty reports whether there is nothing in it.
func (x *Experience) Empty() bool { return len(x.Durations)+len(x.Warm) == 0 }

// LearnedDuration is how long jobs of a name take in a pool: a decayed mean.
type LearnedDuration struct {
	Pool, Job string
	Mean      time.Duration
}

// LearnedWarm is the machines that ran jobs of an affinity lately, the latest first. The
// affinity is a word, or a project where that is empty.
type LearnedWarm struct {
	Word     string
	Project  int64
	Machines []spillway.MachineID
}

// Learned returns what was learned since the last call, the latest first. What was heard
// by Learn is not told again; what is beyond MaxExperience is told when it is learned
// anew.
func (e *Engine) Learned() (x Experience) {
	t := &e.tastes
	for of, mean := range t.durations.news() {
		if len(x.Durations) == MaxExperience {
			break
		}
		x.Durations = append(x.Durations, LearnedDuration{Pool: of.pool, Job: of.job, Mean: seconds(mean)})
	}
	for of, machines := range t.warm.news() {
		if len(x.Warm) == MaxExperience {
			break
		}
		x.Warm = append(x.Warm, LearnedWarm{Word: of.word, Project: of.project, Machines: slices.Clone(machines)})
	}
	t.durations.told, t.warm.told = t.durations.puts, t.warm.puts
	return x
}

// Learn takes over what others have learned. Where this engine has learned something
// since it was last asked, both count.
func (e *Engine) Learn(x Experience) {
	t := &e.tastes
	for _, l := range slices.Backward(x.Durations) { // so that the latest is remembered longest
		of := history{l.Pool, l.Job}
		mean := l.Mean.Seconds()
		if own, isNew := t.durations.own(of); isNew {
			t.durations.put(of, (own+mean)/2)
			continue
		}
		t.durations.hear(of, mean)
	}
	for _, l := range slices.Backward(x.Warm) {
		of := affinity{word: l.Word, project: l.Project}
		machines := l.Machines[:min(len(l.Machines), warmMachines)]
		if own, isNew := t.warm.own(of); isNew {
			t.warm.put(of, united(own, machines))
			continue
		}
		t.warm.hear(of, slices.Clone(machines))
	}
}

// united is both lists, the first one's machines first, as many as are remembered.
func united(first, then []spillway.MachineID) []spillway.MachineID {
	all := slices.Clone(first)
	for _, id := range then {
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all[:min(len(all), warmMachines)]
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// news yields what was put since it was told, the latest first.
func (r *recent[K, V]) news() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for l := r.order.last; l != nil && l.value.at > r.told; l = l.prev {
			if m := l.value; !m.heard && !yield(m.key, m.value) {
				return
			}
		}
	}
}

// own returns a value, and whether it was put here and not told yet.
func (r *recent[K, V]) own(key K) (value V, isNew bool) {
	m := r.byKey[key]
	if m == nil || m.heard || m.at <= r.told {
		return value, false
	}
	return m.value, true
}

// hear is put for what others have told.
func (r *recent[K, V]) hear(key K, value V) {
	r.put(key, value)
	r.byKey[key].heard = true
}
