package providers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// ErrClosed is a call to a plugin that was closed.
var ErrClosed = errors.New("plugin is closed")

// Plugin is one provider plugin, kept running. It may be used by any number of
// goroutines.
type Plugin struct {
	spec     Spec
	sum      string
	timing   Timing
	observer Observer
	log      *slog.Logger
	now      atomic.Pointer[moment] // written by the supervisor only
	reads    reads                  // repeated where that helps
	batch    *batcher
	stop     func(context.Context) error // set by who made it
}

func newPlugin(spec Spec, sum string, o Options) *Plugin {
	p := &Plugin{
		spec: spec, sum: sum, timing: o.Timing, observer: o.Observer,
		log: o.Logger.With(slog.String("provider", spec.Name)),
	}
	p.reads = newRetry(&unrepeated{p}, p.repeated)
	p.batch = newBatcher(p)
	p.now.Store(&moment{
		state: State{
			Name: spec.Name, Path: spec.Path, SHA256: sum, Phase: Starting, Since: time.Now(),
		},
		changed: make(chan struct{}),
	})
	return p
}

// State is a snapshot for people and for the decision to ask at all.
func (p *Plugin) State() State { return p.now.Load().state }

// Name is the provider's in the configuration.
func (p *Plugin) Name() string { return p.spec.Name }

// Ready waits until the plugin answers calls. It fails when ctx ends, and with
// the reason when the plugin is broken or its first start failed.
func (p *Plugin) Ready(ctx context.Context) error {
	for {
		m := p.now.Load()
		if m.session != nil {
			return nil
		}
		err := m.hopeless(ctx)
		if m.state.Plugin == "" {
			err = m.err // it never was ready
		}
		if err != nil {
			return err
		}
		select {
		case <-m.changed:
		case <-ctx.Done():
			return fmt.Errorf("provider %q is %s: %w", p.spec.Name, m.state.Phase, context.Cause(ctx))
		}
	}
}

// Close gives the plugin up. With its last owner the plugin is told, and killed
// if it doesn't end in time; ctx can only shorten that. No process is left when
// it returns.
func (p *Plugin) Close(ctx context.Context) error { return p.stop(ctx) }

// publish puts next in the place of the present moment and wakes who waits. Only
// the plugin's supervisor calls it.
func (p *Plugin) publish(next *moment) {
	next.changed = make(chan struct{})
	if s := p.now.Load().session; s != nil && s != next.session {
		s.end.Store(&next.err) // whoever was calling may look when the next one runs
	}
	last := p.now.Swap(next)
	close(last.changed)
	p.observer.StateChanged(next.state)
}

// live returns the session to make a call with. While the plugin restarts it
// waits, unless the call's deadline is over before the next start: then, and
// when the plugin is broken, it fails at once, so that one plugin that is down
// doesn't hold up a pool's loop for a deadline each time.
func (p *Plugin) live(ctx context.Context) (*session, error) {
	for {
		m := p.now.Load()
		if m.session != nil && m.session.alive() {
			return m.session, nil
		}
		if err := m.hopeless(ctx); err != nil {
			return nil, p.notCalled(m, err)
		}
		select {
		case <-m.changed:
		case <-ctx.Done():
			return nil, p.notCalled(m, because(endOf(ctx), m.err))
		}
	}
}

func (p *Plugin) notCalled(m *moment, why error) error {
	return pluginsdk.Errorf(pluginsdk.KindTransient, "provider %q is %s: %w", p.spec.Name, m.state.Phase, &downError{why})
}

// hopeless says why waiting with ctx leads nowhere; nil when it may.
func (m *moment) hopeless(ctx context.Context) error {
	switch deadline, limited := ctx.Deadline(); {
	case m.state.Phase == Broken, m.state.Phase == Closed:
		return m.err
	case m.err != nil && limited && deadline.Before(m.state.RetryAt):
		return m.err
	default:
		return nil
	}
}

// repeated tells of a read that is about to be made again.
func (p *Plugin) repeated(op Op, err error) {
	p.observer.CallRepeated(CallInfo{Provider: p.spec.Name, Op: op}, err)
}

// unrepeated is one call each.
type unrepeated struct{ plugin *Plugin }

func (u *unrepeated) Status(ctx context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
	answers, err := call(ctx, u.plugin, func(ctx context.Context, p pluginsdk.Provider) ([]pluginsdk.GroupStatus, error) {
		return p.Status(ctx, groups)
	})
	if err != nil {
		return nil, err
	}
	for i := range answers {
		answers[i].Err = patient(answers[i].Err)
	}
	return answers, matches(groups, answers)
}

func (u *unrepeated) ListInstances(ctx context.Context, group string) ([]pluginsdk.Instance, error) {
	return call(ctx, u.plugin, func(ctx context.Context, p pluginsdk.Provider) ([]pluginsdk.Instance, error) {
		return p.ListInstances(ctx, group)
	})
}

// call makes one call with the session of the moment.
func call[T any](ctx context.Context, p *Plugin, f func(context.Context, pluginsdk.Provider) (T, error)) (T, error) {
	s, err := p.live(ctx)
	if err != nil {
		var none T
		return none, err
	}
	answer, err := f(ctx, s.provider)
	s.judge(ctx, err)
	return answer, patient(p.explain(ctx, s, err))
}
