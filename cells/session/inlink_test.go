package session_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
)

func hailFrom(cell string) *cellsv1.OriginMessage {
	return &cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Hello{Hello: &cellsv1.Hello{
		Cell: cell, Region: "here", Epoch: 1, Lease: durationpb.New(3 * time.Second),
	}}}
}

// An origin that is answered and never reads is hung up on, also while an answer to it is
// being written: it keeps nothing of the cell.
func TestAnOriginThatDoesNotReadIsHungUpOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPeer(t, openStore(t), "b-1", nil)
		stream, err := p.client.Link(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(hailFrom("deaf")))
		unknown := &cellsv1.Renew{}
		for i := range 200 {
			unknown.Also = append(unknown.Also, att(fmt.Sprint("nobody-knows-", i)))
		}
		renew := &cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Renew{Renew: unknown}}
		var sending sync.WaitGroup
		sending.Go(func() {
			for stream.Send(renew) == nil {
			}
		})
		require.Eventually(t, p.receiver.Linked, within, every)
		require.Eventually(t, func() bool { return !p.receiver.Linked() }, within, every, "its link is kept")
		for err == nil { // what was on its way, and then why
			_, err = stream.Recv()
		}
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
		require.ErrorContains(t, err, "does not read")
		sending.Wait()
	})
}

// The cells that one answers for are bounded; one that has gone and left nothing makes room.
func TestOriginsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 256
		p := startPeer(t, openStore(t), "b-1", nil)
		link := func(cell string) (end context.CancelFunc, err error) {
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			stream, err := p.client.Link(ctx)
			require.NoError(t, err)
			require.NoError(t, stream.Send(hailFrom(cell)))
			_, err = stream.Recv()
			return cancel, err
		}
		var leave context.CancelFunc
		for i := range most {
			end, err := link(fmt.Sprint("cell-", i))
			require.NoError(t, err)
			leave = end
		}
		_, err := link("one-more")
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
		require.ErrorContains(t, err, "256")
		_, err = link("cell-0")
		require.NoError(t, err, "one that is known, again")
		leave()
		require.Eventually(t, func() bool { _, err = link("one-more"); return err == nil }, within, every)
	})
}
