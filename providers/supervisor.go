package providers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// supervisor keeps one plugin running. Its goroutine, run, owns all of it and is
// the only one that changes the plugin's moment; others read the moment and
// poke hung.
type supervisor struct {
	plugin   *Plugin
	launcher *launcher
	hung     chan *session
	restarts restarts
	count    int // of restarts
}

func newSupervisor(p *Plugin, l *launcher) *supervisor {
	hung := make(chan *session, 1)
	l.hung = hung
	return &supervisor{plugin: p, launcher: l, hung: hung, restarts: restarts{timing: p.timing}}
}

// run keeps the plugin running until ctx ends, then closes it; kill is for a
// shorter end. No process is left when it returns.
func (s *supervisor) run(ctx, kill context.Context) {
	for ctx.Err() == nil {
		session, err := s.launcher.launch(ctx)
		var life time.Duration
		if err == nil {
			s.ready(session)
			err = s.guard(ctx, session)
			life = time.Since(session.since)
			if ctx.Err() != nil {
				s.closed(session.close(kill, s.plugin.timing))
				return
			}
		}
		if ctx.Err() != nil {
			break
		}
		wait, broken := s.restarts.died(time.Now(), life, errors.Is(err, pluginsdk.ErrInvalid))
		wait = unevenly(wait)
		s.down(err, wait, broken)
		if session != nil {
			session.discard()
		}
		pause(ctx, wait)
		s.count++
	}
	s.closed(nil)
}

// guard returns why the session is over.
func (s *supervisor) guard(ctx context.Context, live *session) error {
	tick := time.NewTicker(s.plugin.timing.Ping)
	defer tick.Stop()
	pinged := make(chan error, 1)
	asking, misses := false, 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-live.ended():
			return s.death(live)
		case suspect := <-s.hung:
			if suspect == live { // else it has been dealt with
				return fmt.Errorf("%d calls in a row got no answer in time: killed", maxMisses)
			}
		case <-tick.C:
			if !asking {
				asking = true
				go func() { pinged <- s.ping(ctx, live) }()
			}
		case err := <-pinged:
			asking = false
			if err == nil {
				misses = 0
				continue
			}
			if misses++; misses >= maxMisses {
				return fmt.Errorf("%d pings in a row failed, the last one: %w: killed", misses, err)
			}
		}
	}
}

func (s *supervisor) ping(ctx context.Context, live *session) error {
	ctx, cancel := context.WithTimeout(ctx, s.plugin.timing.PingAnswer)
	defer cancel()
	return live.ping(ctx)
}

// death says how a process ended that nobody asked to.
func (s *supervisor) death(live *session) error {
	live.process.Await()
	return fmt.Errorf("the process ended (%s)%s", live.process.Fate(), said(s.launcher.output.words.String()))
}

func (s *supervisor) ready(live *session) {
	next := s.plugin.State()
	next.Phase, next.Since, next.RetryAt = Ready, live.since, time.Time{}
	next.PID, next.Restarts = live.process.PID(), s.count
	next.Plugin, next.Version = live.description.Name, live.description.Version
	next.Contract, next.Capabilities = live.contract, live.description.Capabilities
	s.plugin.publish(&moment{state: next, session: live})
}

func (s *supervisor) down(err error, wait time.Duration, broken bool) {
	next := s.plugin.State()
	now := time.Now()
	next.Phase, next.Since, next.RetryAt = Restarting, now, now.Add(wait)
	if broken {
		next.Phase = Broken
	}
	next.PID, next.LastError = 0, err.Error()
	s.plugin.log.LogAttrs(context.Background(), slog.LevelWarn, "plugin is down",
		slog.String("phase", string(next.Phase)), slog.String("error", next.LastError), slog.Duration("retry_in", wait))
	s.plugin.publish(&moment{state: next, err: err})
}

func (s *supervisor) closed(err error) {
	next := s.plugin.State()
	next.Phase, next.Since, next.PID, next.RetryAt = Closed, time.Now(), 0, time.Time{}
	if err != nil {
		next.LastError = err.Error()
	}
	s.plugin.publish(&moment{state: next, err: ErrClosed})
}
