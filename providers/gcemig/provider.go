package gcemig

import (
	"context"
	"net/http"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Version of this plugin, semver.
const Version = "1.0.0"

// Provider scales managed instance groups.
type Provider struct {
	pluginsdk.Unsupported // CompleteHook, Protect, Count: a managed instance group has none

	clock      clock
	below      http.RoundTripper // nil = connections
	configured pluginsdk.Configured[session]
}

// clock is what a provider needs of time.
type clock struct {
	now func() time.Time
	// pause waits for d; it reports whether ctx goes on.
	pause   func(ctx context.Context, d time.Duration) bool
	virtual bool // the budget's clock is the process's: a simulation has none
}

var _ pluginsdk.Provider = (*Provider)(nil)

// New returns a provider that waits for Configure.
func New() *Provider {
	return &Provider{clock: clock{now: time.Now, pause: pause}}
}

// NewAt is New for a simulation: the time is what now says, and nothing waits for it
// to pass but Watch. Calls go through transport, if it is not nil, and are not paced.
func NewAt(now func() time.Time, transport http.RoundTripper) *Provider {
	skip := func(ctx context.Context, _ time.Duration) bool { return ctx.Err() == nil }
	return &Provider{clock: clock{now: now, pause: skip, virtual: true}, below: transport}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Describe implements pluginsdk.Provider. There is no compare_and_set: a resize takes
// no condition, so that what is expected is compared with a number read just before.
func (p *Provider) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{
		Name: "gcemig", Version: Version, ConfigSchema: ConfigSchema,
		Capabilities: []pluginsdk.Capability{
			pluginsdk.CanWithdraw, pluginsdk.CanWatch, pluginsdk.CanReportHealth, pluginsdk.CanFind,
		},
	}, nil
}

// Configure implements pluginsdk.Provider.
func (p *Provider) Configure(ctx context.Context, raw []byte) error {
	var c config
	if err := pluginsdk.DecodeConfig(raw, &c); err != nil {
		return err
	}
	var budget *pluginsdk.Budget
	if !p.clock.virtual {
		budget = pluginsdk.NewBudget(c.APIRate, int(burstTime*c.APIRate))
	}
	made, err := newClients(ctx, c, budget, p.below)
	if err != nil {
		return err
	}
	if err := p.configured.Set(newSession(c, made, p.clock)); err != nil {
		made.close() // it was never used
		return err
	}
	return nil
}

// Close implements pluginsdk.Provider.
func (p *Provider) Close(context.Context) error {
	if s, err := p.configured.Get(); err == nil { // otherwise there is nothing to close
		s.close()
	}
	return nil
}
