package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
)

const (
	// eventBuffer is how many batches of events wait for a slow reader [batches].
	eventBuffer = 256
	// probeAfter is after how long without a message a subscription is probed. A second
	// silence after that means that the connection is dead, even if it looks open.
	probeAfter = 3 * time.Second
	// resubscribeAfter is the pause between attempts to subscribe again.
	resubscribeAfter = 200 * time.Millisecond
)

// EventBatch is some events, in the order in which they happened within a class.
type EventBatch struct {
	Events []Event
	// Lost: events may have been missed, because the connection broke or the reader
	// was too slow. Who must not miss any reads the jobs' present state now.
	Lost bool
}

// Subscribe delivers every change of a job from now on, made by any replica, until
// ctx or the store ends; then the channel is closed. A slow reader loses events and
// is told so. Each call has a connection of its own: share what it returns.
func (s *Store) Subscribe(ctx context.Context) (<-chan EventBatch, error) {
	out := make(chan EventBatch, eventBuffer)
	lost := false
	err := s.listen(ctx, s.channel("events"), func(payload string, gap bool) {
		batch := EventBatch{Lost: gap || lost}
		if payload != "" {
			events, err := decodeEvents(payload)
			batch.Events, batch.Lost = events, batch.Lost || err != nil
		}
		if len(batch.Events) == 0 && !batch.Lost {
			return
		}
		select {
		case out <- batch:
			lost = false
		default:
			lost = true
			makeLost(out)
		}
	}, func() { close(out) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

// makeLost replaces the oldest waiting batch by a mark, so that a reader who is
// behind learns of it even when nothing happens any more.
func makeLost(out chan EventBatch) {
	select {
	case <-out:
	default:
	}
	select {
	case out <- EventBatch{Lost: true}:
	default:
	}
}

// Pokes wakes whoever hands out jobs: it fires after any replica has added jobs to
// the queue or given some back, and when a poke may have been missed. It is closed
// when ctx or the store ends.
func (s *Store) Pokes(ctx context.Context) (<-chan struct{}, error) {
	return s.pokes(ctx, "poke")
}

// DrainPokes is the same for OrderDrain: read Drains of the pools then.
func (s *Store) DrainPokes(ctx context.Context) (<-chan struct{}, error) {
	return s.pokes(ctx, "drains")
}

func (s *Store) pokes(ctx context.Context, name string) (<-chan struct{}, error) {
	out := make(chan struct{}, 1)
	err := s.listen(ctx, s.channel(name), func(string, bool) {
		select {
		case out <- struct{}{}:
		default:
		}
	}, func() { close(out) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Canceled delivers the ids of jobs that any replica has canceled from now on and that
// somebody had claimed, until ctx or the store ends; then the channel is closed. A nil
// slice says that some may have been missed: renew the claims then, which tells.
func (s *Store) Canceled(ctx context.Context) (<-chan []spillway.JobID, error) {
	out := make(chan []spillway.JobID, eventBuffer)
	missed := false
	err := s.listen(ctx, s.channel("canceled"), func(payload string, gap bool) {
		var ids []spillway.JobID
		if missed = missed || gap; !missed {
			for id := range strings.SplitSeq(payload, "\n") {
				ids = append(ids, spillway.JobID(id))
			}
		}
		select {
		case out <- ids:
			missed = false
		default:
			missed = true
		}
	}, func() { close(out) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

// listen calls each for every message on a channel, and once with gap after every
// break, from a goroutine that it starts; end is called at last.
func (s *Store) listen(ctx context.Context, channel string, each func(payload string, gap bool), end func()) error {
	sub, err := s.subscribe(ctx, channel)
	if err != nil {
		return failed("subscribe", err, reading)
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel)
	s.background.Go(func() {
		defer end()
		defer cancel()
		defer stop()
		for {
			receive(ctx, sub, each)
			_ = sub.Close() // it is broken, or nobody needs it any more
			if sub = s.subscribeAgain(ctx, channel); sub == nil {
				return
			}
			each("", true)
		}
	})
	return nil
}

// subscribe returns when the server has confirmed.
func (s *Store) subscribe(ctx context.Context, channel string) (*redis.PubSub, error) {
	ctx, done := s.begin(ctx)
	defer done()
	sub := s.rdb.Subscribe(ctx, channel)
	if _, err := sub.ReceiveTimeout(ctx, s.opt.Timeout); err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	return sub, nil
}

// subscribeAgain tries until it succeeds; nil when ctx ends.
func (s *Store) subscribeAgain(ctx context.Context, channel string) *redis.PubSub {
	for ctx.Err() == nil {
		if sub, err := s.subscribe(ctx, channel); err == nil {
			return sub
		}
		select {
		case <-ctx.Done():
		case <-time.After(resubscribeAfter):
		}
	}
	return nil
}

// receive hands on messages until the connection is dead or ctx ends.
func receive(ctx context.Context, sub *redis.PubSub, each func(payload string, gap bool)) {
	// A read does not notice that ctx ends; closing the connection ends it.
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	probed := false
	for ctx.Err() == nil {
		msg, err := sub.ReceiveTimeout(ctx, probeAfter)
		var timeout net.Error
		switch {
		case err == nil:
			probed = false
			if m, ok := msg.(*redis.Message); ok {
				each(m.Payload, false)
			}
		case errors.As(err, &timeout) && timeout.Timeout() && !probed:
			if sub.Ping(ctx) != nil {
				return
			}
			probed = true
		default:
			return
		}
	}
}

// decodeEvents reads what tell in scripts/queue.lua wrote. It returns what it could
// read along with an error.
func decodeEvents(payload string) ([]Event, error) {
	var events []Event
	for payload != "" {
		var parts [3]string
		for i := range parts {
			size, rest, ok := strings.Cut(payload, ":")
			n, err := strconv.Atoi(size)
			if !ok || err != nil || n < 0 || n > len(rest) {
				return events, fmt.Errorf("%w: an event", errContent)
			}
			parts[i], payload = rest[:n], rest[n:]
		}
		record, err := decodeRecord(parts[1], parts[2])
		if err != nil {
			return events, err
		}
		events = append(events, Event{Record: record})
	}
	return events, nil
}
