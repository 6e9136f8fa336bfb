package ec2asg

import (
	"slices"
	"sync"
	"time"
)

// rota is what was learnt of each group by a call about that group alone, and when.
// It says whose turn it is to be asked about, so that the calls of one look are
// bounded and none is left out for good.
type rota[T any] struct {
	now func() time.Time
	mu  sync.Mutex
	all map[string]lesson[T]
}

type lesson[T any] struct {
	value T
	known bool
	at    time.Time // of the last try
}

func newRota[T any](now func() time.Time) *rota[T] {
	return &rota[T]{now: now, all: map[string]lesson[T]{}}
}

// due are those of names that were last asked about at least age ago, the longest
// ago first, at most so many.
func (r *rota[T]) due(names []string, age time.Duration, most int) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	late := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		l, ok := r.all[name]
		return ok && now.Sub(l.at) < age
	})
	slices.SortStableFunc(late, func(a, b string) int { return r.all[a].at.Compare(r.all[b].at) })
	return late[:min(most, len(late))]
}

// learnt keeps what a call has told.
func (r *rota[T]) learnt(name string, value T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[name] = lesson[T]{value, true, r.now()}
}

// tried notes that a call told nothing. What was known stays.
func (r *rota[T]) tried(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.all[name]
	l.at = r.now()
	r.all[name] = l
}

// get returns what is known; ok is false if nothing is.
func (r *rota[T]) get(name string) (value T, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[name].value, r.all[name].known
}
