package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
)

// deaf is a store that nobody can listen to at first.
type deaf struct {
	Store
	tries, reads int
	pokes        chan struct{}
}

func (d *deaf) SettingPokes(context.Context, string) (<-chan struct{}, error) {
	if d.tries++; d.tries < 3 {
		return nil, store.ErrUnavailable
	}
	return d.pokes, nil
}

func (d *deaf) Settings(context.Context, string) (map[string][]byte, error) {
	d.reads++
	return map[string][]byte{}, nil
}

// A store that was away for a moment when this replica began must not leave it half deaf.
func TestWhoCouldNotListenAtFirstListensLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &deaf{pokes: make(chan struct{}, 1)}
		d := &directory{store: s, looks: rate.NewLimiter(looksPerSecond, looksPerSecond), opt: &Options{
			Configured: func() []Configured { return nil }, Replace: func([]spillway.Pool) error { return nil },
		}}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go d.follow(ctx)
		time.Sleep(2*poolsRetry + time.Millisecond)
		synctest.Wait()
		require.Equal(t, 3, s.tries)
		read := s.reads
		s.pokes <- struct{}{}
		synctest.Wait()
		require.Equal(t, read+1, s.reads)
		require.Equal(t, 3, s.tries, "it listens")
	})
}
