package ingress

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

// carrying is a session that runs.
type carrying struct {
	*carry
	tunnel *fakeTunnel
	caller *fakeCaller
	ended  chan error
	leave  context.CancelFunc
}

func startCarry(limits Limits) *carrying {
	ctx, cancel := context.WithCancel(context.Background())
	c := &carrying{tunnel: newFakeTunnel(), caller: newFakeCaller(ctx), ended: make(chan error, 1), leave: cancel}
	c.carry = &carry{limits: limits.withDefaults(), caller: c.caller, tunnel: c.tunnel}
	go func() {
		err := c.run(ctx)
		c.tunnel.Close(err)
		c.ended <- err
	}()
	return c
}

// finish ends what may still wait.
func (c *carrying) finish() {
	c.leave()
	c.tunnel.Close(nil)
}

func TestBothWaysAndTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCarry(Limits{})
		defer c.finish()
		c.caller.says <- data(3)
		require.Len(t, (<-c.tunnel.up).GetData(), 3)
		c.tunnel.down <- data(5)
		require.Len(t, (<-c.caller.hears).GetData(), 5)
		c.caller.says <- endFrame()
		require.NotNil(t, (<-c.tunnel.up).GetEnd())
		c.caller.says <- &debugv1.Frame{Frame: &debugv1.Frame_Size{Size: &debugv1.Size{Rows: 3}}}
		require.Equal(t, int32(3), (<-c.tunnel.up).GetSize().GetRows(), "the terminal may change after the end of input")
		c.tunnel.down <- exit(7)
		require.Equal(t, int32(7), (<-c.caller.hears).GetExit().GetCode())
		require.NoError(t, <-c.ended)
		require.Equal(t, int64(3), c.up.Load())
		require.Equal(t, int64(5), c.down.Load())
	})
}

func TestACallerWhoseStreamEndsHasSaidAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCarry(Limits{})
		defer c.finish()
		close(c.caller.says)
		require.NotNil(t, (<-c.tunnel.up).GetEnd())
		c.tunnel.down <- data(1)
		<-c.caller.hears
		close(c.tunnel.down)
		require.NoError(t, <-c.ended)
	})
}

// A session through which something passes goes on; the idle time counts from the last byte.
func TestIdleTimeoutAtItsEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCarry(Limits{IdleTimeout: time.Minute, MaxDuration: time.Hour})
		defer c.finish()
		for range 3 {
			time.Sleep(time.Minute - time.Millisecond)
			c.caller.says <- data(1)
			<-c.tunnel.up
			time.Sleep(time.Minute - time.Millisecond)
			c.tunnel.down <- data(1)
			<-c.caller.hears
		}
		time.Sleep(time.Minute - time.Millisecond)
		synctest.Wait()
		require.Empty(t, c.ended)
		// What is not a byte of the session does not count.
		c.caller.says <- &debugv1.Frame{Frame: &debugv1.Frame_Size{Size: &debugv1.Size{}}}
		<-c.tunnel.up
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		err := <-c.ended
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.ErrorContains(t, err, "nothing has passed for 1m0s (debug.idle_timeout)")
	})
}

func TestMaxDurationAtItsEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCarry(Limits{IdleTimeout: time.Minute, MaxDuration: 90 * time.Second})
		defer c.finish()
		time.Sleep(50 * time.Second)
		c.caller.says <- data(1)
		<-c.tunnel.up
		time.Sleep(40*time.Second - time.Millisecond)
		synctest.Wait()
		require.Empty(t, c.ended)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		err := <-c.ended
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.ErrorContains(t, err, "debug.max_duration")
	})
}

// As many bytes as may pass do, both ways together; the next one does not.
func TestMaxBytesAtItsEdge(t *testing.T) {
	for name, more := range map[string]func(c *carrying){
		"up":   func(c *carrying) { c.caller.says <- data(1) },
		"down": func(c *carrying) { c.tunnel.down <- data(1) },
		"stderr": func(c *carrying) {
			c.tunnel.down <- &debugv1.Frame{Frame: &debugv1.Frame_Stderr{Stderr: make([]byte, 1)}}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := startCarry(Limits{MaxBytes: 10})
			defer c.finish()
			c.caller.says <- data(4)
			<-c.tunnel.up
			c.tunnel.down <- data(6)
			<-c.caller.hears
			synctest.Wait()
			require.Empty(t, c.ended)
			more(c)
			err := <-c.ended
			require.Equal(t, codes.ResourceExhausted, status.Code(err), name)
			require.ErrorContains(t, err, "10 bytes that it may (debug.max_bytes)")
			require.Equal(t, int64(10), c.up.Load()+c.down.Load(), "what is too much is not passed on")
		})
	}
}

func TestPiecesAtTheirEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCarry(Limits{})
		defer c.finish()
		c.caller.says <- data(MaxPieceBytes)
		<-c.tunnel.up
		c.caller.says <- data(MaxPieceBytes + 1)
		require.Equal(t, codes.InvalidArgument, status.Code(<-c.ended))
	})
}

// A size or a signal that comes when the command has just ended is no failure.
func TestWhatIsSaidAfterTheEndToATunnelThatTakesNoMoreIsNoFailure(t *testing.T) {
	for name, late := range map[string]*debugv1.Frame{
		"size": {Frame: &debugv1.Frame_Size{Size: &debugv1.Size{}}}, "signal": {Frame: &debugv1.Frame_Signal{Signal: &debugv1.Signal{Name: "INT"}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := startCarry(Limits{})
			defer c.finish()
			c.caller.says <- endFrame()
			<-c.tunnel.up
			close(c.tunnel.full)
			c.caller.says <- late
			synctest.Wait()
			c.tunnel.down <- exit(3)
			require.Equal(t, int32(3), (<-c.caller.hears).GetExit().GetCode(), name)
			require.NoError(t, <-c.ended, name)
		})
	}
}

// The name of a signal is not a way around the limit of bytes.
func TestSignalsAtTheirEdge(t *testing.T) {
	signal := func(n int) *debugv1.Frame {
		return &debugv1.Frame{Frame: &debugv1.Frame_Signal{Signal: &debugv1.Signal{Name: strings.Repeat("x", n)}}}
	}
	for _, after := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := startCarry(Limits{})
			defer c.finish()
			if after {
				c.caller.says <- endFrame()
				<-c.tunnel.up
			}
			c.caller.says <- signal(maxSignalBytes)
			<-c.tunnel.up
			c.caller.says <- signal(maxSignalBytes + 1)
			require.Equal(t, codes.InvalidArgument, status.Code(<-c.ended))
		})
	}
}

// Each side says what is its own to say.
func TestRulesOfASession(t *testing.T) {
	opened := &debugv1.Frame{Frame: &debugv1.Frame_Opened{Opened: &debugv1.Opened{}}}
	for name, f := range map[string]*debugv1.Frame{"exit": exit(0), "open": {Frame: &debugv1.Frame_Open{Open: &debugv1.Open{}}}, "opened": opened, "nothing": {}} {
		synctest.Test(t, func(t *testing.T) {
			c := startCarry(Limits{})
			defer c.finish()
			c.caller.says <- f
			require.ErrorIs(t, <-c.ended, errCallerFrame, name)
		})
	}
	for name, f := range map[string]*debugv1.Frame{"size": {Frame: &debugv1.Frame_Size{Size: &debugv1.Size{}}}, "opened again": opened, "nothing": {}} {
		synctest.Test(t, func(t *testing.T) {
			c := startCarry(Limits{})
			defer c.finish()
			c.tunnel.down <- f
			require.ErrorIs(t, <-c.ended, errMachineFrame, name)
		})
	}
}

// A caller who does not read holds up its tunnel: nothing is kept for it. Its limits end
// it all the same.
func TestAnUnreadSessionIsHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCarry(Limits{IdleTimeout: time.Minute})
		defer c.finish()
		sent := 0
		for full := false; !full; {
			select {
			case c.tunnel.down <- data(1):
				sent++
			case <-time.After(time.Second):
				full = true
			}
		}
		require.LessOrEqual(t, sent, 2, "one that the caller holds, and one in hand")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, codes.DeadlineExceeded, status.Code(<-c.ended))
	})
}

func TestWhoeverEndsItSaysWhy(t *testing.T) {
	jobEnded := status.Error(codes.Aborted, "the job has ended")
	for name, c := range map[string]struct {
		end  func(*carrying)
		want error
	}{
		"the tunnel":             {func(c *carrying) { c.tunnel.Close(jobEnded) }, jobEnded},
		"the caller":             {func(c *carrying) { c.leave() }, nil},
		"the machine, in order":  {func(c *carrying) { close(c.tunnel.down) }, nil},
		"after the caller's end": {func(c *carrying) { close(c.caller.says); <-c.tunnel.up; c.tunnel.Close(jobEnded) }, jobEnded},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := startCarry(Limits{})
			defer s.finish()
			c.end(s)
			err := <-s.ended
			switch {
			case name == "the caller":
				require.Error(t, err)
			case c.want == nil:
				require.NoError(t, err, name)
			default:
				require.Equal(t, c.want, err, name)
			}
		})
	}
	require.NotErrorIs(t, errOver, io.EOF)
}

// A caller that does not read what is left of a tunnel that is over holds nobody up: its
// time and the end of the replica count as before.
func TestATunnelThatIsOverWaitsForItsCallerNoLongerThanAnotherOne(t *testing.T) {
	for name, shutDown := range map[string]bool{"its duration": false, "the replica ends": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				present, leave := context.WithCancel(context.Background())
				defer leave()
				ctx, end := context.WithCancelCause(context.Background())
				defer end(nil)
				tunnel, want := newFakeTunnel(), codes.DeadlineExceeded
				c := &carry{limits: Limits{MaxDuration: time.Minute}.withDefaults(), caller: newFakeCaller(present), tunnel: tunnel}
				ended := make(chan error, 1)
				go func() { ended <- c.run(ctx) }()
				tunnel.down <- data(1)
				tunnel.down <- data(1) // one more than the caller has room for
				synctest.Wait()
				tunnel.Close(nil)
				synctest.Wait()
				require.Empty(t, ended, "what was said is still on its way")
				if shutDown {
					end(errShutDown)
					want = codes.Unavailable
				}
				require.Equal(t, want, status.Code(<-ended))
			})
		})
	}
}
