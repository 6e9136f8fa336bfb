package ec2asg

import (
	"context"
	"net/http"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Version of this plugin, semver.
const Version = "1.0.0"

// Provider drives Auto Scaling groups.
type Provider struct {
	pluginsdk.Unsupported
	options    Options
	configured pluginsdk.Configured[session]
}

var _ pluginsdk.Provider = (*Provider)(nil)

// Options is for tests and simulations: the zero value is the real thing.
type Options struct {
	// Now is the clock; nil = the wall clock. What is measured with it: how old a
	// read is, when a heartbeat of a hook is due, how long a failure is shown. It does
	// not drive api_rate and deadlines, which wait on the wall clock.
	Now func() time.Time
	// HTTP carries the requests; nil = a client with timeouts.
	HTTP interface {
		Do(*http.Request) (*http.Response, error)
	}
	// AccessKeyID and SecretAccessKey are for a stand-in; empty = credentials from
	// where every AWS program takes them.
	AccessKeyID, SecretAccessKey string
}

// New returns a provider that waits for Configure.
func New() *Provider { return NewWith(Options{}) }

// NewAt returns a provider on a clock of the caller's.
func NewAt(now func() time.Time) *Provider { return NewWith(Options{Now: now}) }

// NewWith returns a provider with options.
func NewWith(o Options) *Provider {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Provider{options: o}
}

// Describe implements pluginsdk.Provider. What needs a setting is declared all the
// same, and answers ErrUnsupported without it: Describe comes before Configure.
//
// CanCompareAndSet is not there: SetDesiredCapacity has no expected value, so that
// between our look and our write there is a race of one round trip.
func (p *Provider) Describe(context.Context) (pluginsdk.Description, error) {
	d := pluginsdk.Description{Name: "ec2asg", Version: Version, ConfigSchema: ConfigSchema, Capabilities: []pluginsdk.Capability{
		pluginsdk.CanWithdraw, pluginsdk.CanProtect, pluginsdk.CanCompleteHook, pluginsdk.CanReportHealth, pluginsdk.CanFind, pluginsdk.CanCount,
	}}
	if s, err := p.configured.Get(); err != nil || s.config.NoticesQueue != "" {
		d.Capabilities = append(d.Capabilities, pluginsdk.CanWatch)
	}
	return d, nil
}

// Configure implements pluginsdk.Provider. It makes no call: credentials that are
// not there yet are an error of the calls that need them.
func (p *Provider) Configure(ctx context.Context, raw []byte) error {
	var c config
	if err := pluginsdk.DecodeConfig(raw, &c); err != nil {
		return err
	}
	s, err := newSession(ctx, &c, p.options)
	if err != nil {
		return err
	}
	return p.configured.Set(s)
}

// Close implements pluginsdk.Provider. There is nothing to release.
func (p *Provider) Close(context.Context) error { return nil }

// of returns the session, for a call about one group.
func (p *Provider) of(group string) (*session, error) {
	s, err := p.configured.Get()
	if err != nil {
		return nil, err
	}
	if !s.groups[group] {
		return nil, notFound(group)
	}
	return s, nil
}

func notFound(name string) error {
	return pluginsdk.Errorf(pluginsdk.KindNotFound, "there is no Auto Scaling group %q, or it is not configured", name)
}
