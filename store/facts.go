package store

import (
	"context"
	"fmt"

	"github.com/spillway-ci/spillway"
)

const (
	// MaxFactBytes bounds a fact [bytes].
	MaxFactBytes = 8 << 10
	// factBuffer is how many facts wait for a slow reader [facts].
	factBuffer = 256
)

func (s *Store) factChannel(topic string) string { return s.channel("facts:" + topic) }

// PublishFact tells every replica that listens on a topic, this one included. It keeps
// nothing: who does not listen now never hears of it, and must find out by itself.
func (s *Store) PublishFact(ctx context.Context, topic string, data []byte) error {
	if !sharedName(topic) {
		return fmt.Errorf("store: publish fact: %w: topic %.40q", spillway.ErrInvalid, topic)
	}
	if len(data) > MaxFactBytes {
		return fmt.Errorf("store: publish fact on %s: %w: %d bytes, at most %d are allowed", topic, spillway.ErrInvalid, len(data), MaxFactBytes)
	}
	ctx, done := s.begin(ctx)
	defer done()
	return failed("publish fact", s.rdb.Publish(ctx, s.factChannel(topic), data).Err(), writing)
}

// Facts delivers what any replica publishes on a topic from now on, until ctx or the
// store ends; then the channel is closed. What a slow reader has no room for is
// dropped, and so is what is published while a connection is broken. The data is
// anybody's who has the store's password: check it.
func (s *Store) Facts(ctx context.Context, topic string) (<-chan []byte, error) {
	if !sharedName(topic) {
		return nil, fmt.Errorf("store: facts: %w: topic %.40q", spillway.ErrInvalid, topic)
	}
	out := make(chan []byte, factBuffer)
	err := s.listen(ctx, s.factChannel(topic), func(payload string, gap bool) {
		if gap || len(payload) > MaxFactBytes {
			return
		}
		select {
		case out <- []byte(payload):
		default:
		}
	}, func() { close(out) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

// PublishPoke makes Pokes fire at every replica, as a push does: there may be other
// demand than before.
func (s *Store) PublishPoke(ctx context.Context) error {
	ctx, done := s.begin(ctx)
	defer done()
	return failed("publish poke", s.rdb.Publish(ctx, s.channel("poke"), "").Err(), writing)
}
