package gitlab

import (
	"sync"
	"time"
)

// maxCachedProjects bounds what is remembered of projects [projects].
const maxCachedProjects = 20_000

// cache remembers up to limit answers for up to age. The oldest goes first.
type cache[K comparable, V any] struct {
	limit int
	age   time.Duration

	mu struct {
		sync.Mutex
		entries map[K]entry[V]
		order   []K // a ring of the keys as they were put, each once
		oldest  int // index into order, once that is full
	}
}

type entry[V any] struct {
	value V
	at    time.Time
}

func newCache[K comparable, V any](limit int, age time.Duration) *cache[K, V] {
	c := &cache[K, V]{limit: limit, age: age}
	c.mu.entries = map[K]entry[V]{}
	return c
}

func (c *cache[K, V]) get(k K, now time.Time) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.mu.entries[k]
	if !ok || now.Sub(e.at) >= c.age {
		var none V
		return none, false
	}
	return e.value, true
}

func (c *cache[K, V]) put(k K, v V, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.mu.entries[k]; !known {
		if len(c.mu.order) < c.limit {
			c.mu.order = append(c.mu.order, k)
		} else {
			delete(c.mu.entries, c.mu.order[c.mu.oldest])
			c.mu.order[c.mu.oldest] = k
			c.mu.oldest = (c.mu.oldest + 1) % c.limit
		}
	}
	c.mu.entries[k] = entry[V]{v, now}
}
