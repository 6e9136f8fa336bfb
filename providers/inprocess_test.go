package providers

import (
	"context"
	"fmt"
	"sync"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// InProcess makes a [Plugin] of a provider that lives in this process: for
// tests and simulations. It goes through the same checks and decorators, but not
// over the wire, and nothing restarts it.
func InProcess(ctx context.Context, spec Spec, provider pluginsdk.Provider, o Options) (*Plugin, error) {
	o = o.withDefaults()
	if len(spec.Config) == 0 {
		spec.Config = []byte("{}")
	}
	p := newPlugin(spec, "", o)
	d, err := provider.Describe(ctx)
	if err == nil {
		err = checkConfig(d.ConfigSchema, spec.Config)
	}
	if err == nil {
		err = provider.Configure(ctx, spec.Config)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: provider %q: %w", ErrLaunch, spec.Name, err)
	}
	s := &session{provider: provider, description: d, contract: pluginsdk.ContractVersion, since: time.Now(), hung: make(chan *session, 1)}
	state := p.State()
	state.Phase, state.Since = Ready, s.since
	state.Plugin, state.Version, state.Capabilities = d.Name, d.Version, d.Capabilities
	state.Contract = s.contract
	p.publish(&moment{state: state, session: s})
	var once sync.Once
	p.stop = func(ctx context.Context) (err error) {
		once.Do(func() {
			state.Phase, state.Since = Closed, time.Now()
			p.publish(&moment{state: state, err: ErrClosed})
			err = provider.Close(ctx)
		})
		return err
	}
	return p, nil
}
