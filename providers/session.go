package providers

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillway-ci/spillway/internal/program"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// session is one life of a plugin: a process that was launched, described itself
// and is configured. Its end is for good; a restart makes another one.
type session struct {
	provider    pluginsdk.Provider
	description pluginsdk.Description
	contract    int // version that is spoken
	since       time.Time

	client  *plugin.Client   // nil in-process
	process *program.Process // nil in-process
	health  grpc_health_v1.HealthClient
	dir     string // for its sockets

	hits atomic.Int32    // calls that hit their deadline, in a row
	hung chan<- *session // tells the supervisor; one slot

	end atomic.Pointer[error] // why it is over, for its calls; nil while it isn't
}

// over says why no more calls are made with it; nil while they are.
func (s *session) over() error {
	if why := s.end.Load(); why != nil {
		return *why
	}
	return nil
}

// ended is closed when the process is gone; never in-process.
func (s *session) ended() <-chan struct{} {
	if s.process == nil {
		return nil
	}
	return s.process.Exited()
}

// alive reports whether calls can be made. The supervisor may not have noticed
// yet that they can't.
func (s *session) alive() bool {
	select {
	case <-s.ended():
		return false
	default:
		return true
	}
}

// judge counts deadlines: a process that answers nothing in time, three times in
// a row, is hung, whatever its health service says. Only deadlines of ours count:
// a caller that gave up earlier proves nothing.
func (s *session) judge(ctx context.Context, err error) {
	if err == nil {
		s.hits.Store(0)
		return
	}
	if hadItsTime(ctx, err) {
		if s.hits.Add(1) >= maxMisses {
			select {
			case s.hung <- s:
			default: // it has been told
			}
		}
		return
	}
	if ctx.Err() == nil && s.alive() {
		s.hits.Store(0) // an error is an answer
	}
}

// ping asks go-plugin's health service.
func (s *session) ping(ctx context.Context) error {
	r, err := s.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: plugin.GRPCServiceName})
	if err != nil {
		return err
	}
	if r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return pluginsdk.Errorf(pluginsdk.KindTransient, "health is %s", r.GetStatus())
	}
	return nil
}

// close asks the plugin to end, kills it when it doesn't, and returns when it is
// gone. ctx can only shorten it.
func (s *session) close(ctx context.Context, t Timing) error {
	ctx, cancel := context.WithTimeout(ctx, t.Kill)
	defer cancel()
	closing, done := context.WithTimeout(ctx, t.Close)
	err := s.provider.Close(closing)
	done()
	if err == nil {
		select {
		case <-s.ended():
		case <-ctx.Done():
		}
	}
	s.discard()
	return err
}

// discard kills the process, with all that it started, and frees what the
// session holds. It returns when the process is gone.
func (s *session) discard() {
	s.process.End()
	release(s.client, s.process, s.dir)
}

// release waits for a process that was killed and lets go-plugin clean up after
// it: its connection, goroutines and sockets.
func release(client *plugin.Client, p *program.Process, dir string) {
	p.Await()
	client.Kill()
	_ = os.RemoveAll(dir)
}
