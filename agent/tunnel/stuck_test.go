package tunnel

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// oneWord is a tunnel whose other end says one thing, and reads everything.
type oneWord struct {
	runnerv1.RunnerService_TunnelClient

	ctx  context.Context
	said bool
}

func (*oneWord) Send(*runnerv1.TunnelFrame) error { return nil }

func (o *oneWord) Recv() (*runnerv1.TunnelFrame, error) {
	if !o.said {
		o.said = true
		return &runnerv1.TunnelFrame{Content: &runnerv1.TunnelFrame_Frame{Frame: data()}}, nil
	}
	<-o.ctx.Done()
	return nil, io.EOF
}

func data() *debugv1.Frame { return &debugv1.Frame{Frame: &debugv1.Frame_Data{Data: []byte("x")}} }

// A target that says something, now and then, is not stuck, though it reads nothing.
func TestATargetThatSaysSomethingIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &session{ctx: ctx, rpc: &oneWord{ctx: ctx}, left: make(chan struct{}), stuck: make(chan struct{}), stuckFor: time.Minute}
		deaf := make(chan struct{})
		require.NoError(t, s.begin(func(*debugv1.Frame) { <-deaf }))
		isStuck := func() bool {
			synctest.Wait()
			select {
			case <-s.stuck:
				return true
			default:
				return false
			}
		}
		for range 10 {
			time.Sleep(s.stuckFor - time.Second)
			require.False(t, isStuck())
			require.NoError(t, s.send(data()))
		}
		time.Sleep(2 * s.stuckFor)
		require.True(t, isStuck(), "it says nothing any more")
		close(deaf)
		cancel()
		<-s.left
	})
}
