package session_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells/session"
)

// slowRouter is a router that takes its time to end a conversation.
type slowRouter struct {
	session.Router

	open    *atomic.Int64 // conversations
	closing chan struct{} // has a word for each Close
	goOn    chan struct{} // closed: Close goes on
}

func (r slowRouter) Attach(ctx context.Context, pool spillway.Pool) session.Conversation {
	r.open.Add(1)
	return slowConversation{r.Router.Attach(ctx, pool), r}
}

type slowConversation struct {
	session.Conversation
	r slowRouter
}

func (c slowConversation) Close() {
	c.r.closing <- struct{}{}
	<-c.r.goOn
	c.Conversation.Close()
	c.r.open.Add(-1)
}

// An origin that ends has ended its machines' conversations: nothing of it speaks to a
// router that goes away after it.
func TestAnOriginEndsAfterItsConversations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startPeer(t, openStore(t), "b-1", nil)
		r := slowRouter{open: &atomic.Int64{}, closing: make(chan struct{}, 100), goOn: make(chan struct{})}
		a := startOriginOver(t, openStore(t), "a-1", b, func(way session.Router) session.Router {
			r.Router = way
			return r
		})
		require.Eventually(t, func() bool { return r.open.Load() > 0 }, within, every)
		stopped := make(chan struct{})
		go func() {
			a.stop()
			close(stopped)
		}()
		select {
		case <-r.closing:
		case <-time.After(within):
			require.Fail(t, "no conversation is ended")
		}
		select {
		case <-stopped:
			require.Fail(t, "it has ended before its conversations")
		case <-time.After(50 * time.Millisecond): // it has had the time for that
		}
		close(r.goOn)
		<-stopped
		require.Zero(t, r.open.Load())
	})
}
