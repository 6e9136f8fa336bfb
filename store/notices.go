package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

const (
	// maxNoticeBytes bounds a notice on its way [bytes].
	maxNoticeBytes = 1 << 10
	// maxInstanceBytes bounds the id of an instance in a notice [bytes].
	maxInstanceBytes = 256
	// noticeBuffer is how many notices wait for a slow reader [notices].
	noticeBuffer = 256
)

// NoticeEnded is the kind of a notice that says that a machine's instance is no
// more: whoever holds jobs of that machine need not wait for it.
const NoticeEnded = "ended"

// Notice says that an instance of a pool will be taken away, or that a machine is
// gone with its instance. One replica finds out; the store tells the others.
type Notice struct {
	Pool     string
	Instance string    // the provider's id; with NoticeEnded the machine's
	Kind     string    // as router.Machine.InterruptionKind, or NoticeEnded
	Deadline time.Time // zero = not known
}

// storedNotice is a notice on its way.
type storedNotice struct {
	Pool     string `json:"pool"`
	Instance string `json:"instance"`
	Kind     string `json:"kind"`
	Deadline int64  `json:"deadline,omitempty"` // ms since 1970
}

func (n *Notice) validate() error {
	switch {
	case !spillway.PoolName(n.Pool):
		return fmt.Errorf("%w: pool %.40q", spillway.ErrInvalid, n.Pool)
	case !printable(n.Instance, maxInstanceBytes):
		return fmt.Errorf("%w: instance %.40q", spillway.ErrInvalid, n.Instance)
	case n.Kind != NoticeEnded && !router.KnownInterruption(n.Kind):
		return fmt.Errorf("%w: interruption %.40q", spillway.ErrInvalid, n.Kind)
	}
	return nil
}

// printable reports whether s is 1 to limit bytes of printable ASCII without
// blanks.
func printable(s string, limit int) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= limit
}

// PublishNotice tells every replica that listens, this one included. It keeps
// nothing: who does not listen now never hears of it.
func (s *Store) PublishNotice(ctx context.Context, n Notice) error {
	if err := n.validate(); err != nil {
		return fmt.Errorf("store: publish notice: %w", err)
	}
	stored := storedNotice{Pool: n.Pool, Instance: n.Instance, Kind: n.Kind}
	if !n.Deadline.IsZero() {
		stored.Deadline = n.Deadline.UnixMilli()
	}
	payload, err := json.Marshal(stored)
	if err != nil {
		return fmt.Errorf("store: publish notice: %w", err)
	}
	ctx, done := s.begin(ctx)
	defer done()
	return failed("publish notice", s.rdb.Publish(ctx, s.channel("notices"), payload).Err(), writing)
}

// Notices delivers what any replica publishes from now on, until ctx or the store
// ends; then the channel is closed. In a Cluster they may come in another order than
// they were published in. What is no notice is dropped, and so is what a slow reader
// has no room for: the provider's next list tells of it.
func (s *Store) Notices(ctx context.Context) (<-chan Notice, error) {
	out := make(chan Notice, noticeBuffer)
	err := s.listen(ctx, s.channel("notices"), func(payload string, _ bool) {
		n, ok := decodeNotice(payload)
		if !ok {
			return
		}
		select {
		case out <- n:
		default:
		}
	}, func() { close(out) })
	if err != nil {
		return nil, err
	}
	return out, nil
}

// decodeNotice reads a notice as if anybody could have written it.
func decodeNotice(payload string) (Notice, bool) {
	var stored storedNotice
	if len(payload) > maxNoticeBytes || json.Unmarshal([]byte(payload), &stored) != nil {
		return Notice{}, false
	}
	n := Notice{Pool: stored.Pool, Instance: stored.Instance, Kind: stored.Kind}
	if stored.Deadline > 0 {
		n.Deadline = time.UnixMilli(stored.Deadline).UTC()
	}
	return n, n.validate() == nil
}
