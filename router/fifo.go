package router

import "iter"

// fifo queues values whose deadlines all lie the same time after they are
// queued, so that the first is always the next one due. Anything can leave it
// from anywhere at once.
type fifo[T any] struct {
	first, last *link[T]
}

// link is a value's place in at most one fifo. It is part of the value, so that
// queueing allocates nothing.
type link[T any] struct {
	value      T
	prev, next *link[T]
	queued     bool
}

// push puts l at the end, wherever it was before.
func (q *fifo[T]) push(l *link[T]) {
	q.remove(l)
	l.queued = true
	l.prev = q.last
	if q.last != nil {
		q.last.next = l
	} else {
		q.first = l
	}
	q.last = l
}

// remove does nothing when l is not queued.
func (q *fifo[T]) remove(l *link[T]) {
	if !l.queued {
		return
	}
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		q.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		q.last = l.prev
	}
	l.prev, l.next, l.queued = nil, nil, false
}

// all yields from the first on; the value yielded may leave the queue meanwhile.
func (q *fifo[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for l := q.first; l != nil; {
			next := l.next
			if !yield(l.value) {
				return
			}
			l = next
		}
	}
}
