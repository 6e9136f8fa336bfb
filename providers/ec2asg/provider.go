package ec2asg

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Version of this plugin, semver.
const Version = "0.1.0"

// Provider reads Auto Scaling groups.
type Provider struct {
	mu struct {
		sync.Mutex
		session *session // nil until Configure
	}
}

// session is what Configure makes; it never changes.
type session struct {
	groups      map[string]bool
	credentials aws.CredentialsProvider
	client      autoscaling.DescribeAutoScalingGroupsAPIClient
}

var _ pluginsdk.Provider = (*Provider)(nil)

// New returns a provider that waits for Configure.
func New() *Provider { return &Provider{} }

// Describe implements pluginsdk.Provider. It has no capability: they are all about
// writes and notices.
func (p *Provider) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{Name: "ec2asg", Version: Version, ConfigSchema: ConfigSchema}, nil
}

// Configure implements pluginsdk.Provider. It makes no call: credentials that are
// not there yet are an error of the calls that need them.
func (p *Provider) Configure(ctx context.Context, raw []byte) error {
	c, err := parseConfig(raw)
	if err != nil {
		return err
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(c.region))
	if err != nil {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "load the AWS configuration: %w", err)
	}
	client := autoscaling.NewFromConfig(cfg, func(o *autoscaling.Options) {
		o.Retryer = aws.NopRetryer{} // the control plane decides when to ask again
		if c.endpoint != "" {
			o.BaseEndpoint = aws.String(c.endpoint)
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.session != nil {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "configured already")
	}
	p.mu.session = &session{groups: c.groups, credentials: cfg.Credentials, client: client}
	return nil
}

// Status implements pluginsdk.Provider.
func (p *Provider) Status(ctx context.Context, names []string) ([]pluginsdk.GroupStatus, error) {
	if len(names) > pluginsdk.MaxGroupsPerCall {
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "%d groups in one call, at most %d are allowed", len(names), pluginsdk.MaxGroupsPerCall)
	}
	s, err := p.session()
	if err != nil {
		return nil, err
	}
	found, err := s.describe(ctx, s.known(names))
	if err != nil {
		return nil, err
	}
	statuses := make([]pluginsdk.GroupStatus, len(names))
	for i, name := range names {
		statuses[i] = status(name, found[name])
	}
	return statuses, nil
}

// ListInstances implements pluginsdk.Provider.
func (p *Provider) ListInstances(ctx context.Context, name string) ([]pluginsdk.Instance, error) {
	s, err := p.session()
	if err != nil {
		return nil, err
	}
	found, err := s.describe(ctx, s.known([]string{name}))
	if err != nil {
		return nil, err
	}
	group, ok := found[name]
	if !ok {
		return nil, notFound(name)
	}
	return instances(group), nil
}

func (p *Provider) session() (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.session == nil {
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "not configured")
	}
	return p.mu.session, nil
}

// readOnly is the answer to every write.
func readOnly() error {
	return pluginsdk.Errorf(pluginsdk.KindUnsupported, "this version of ec2asg only reads: run the pool in shadow mode, or use a version that writes")
}

// SetDesired implements pluginsdk.Provider: unsupported.
func (p *Provider) SetDesired(context.Context, pluginsdk.SetDesired) (int, error) {
	return 0, readOnly()
}

// Remove implements pluginsdk.Provider: unsupported.
func (p *Provider) Remove(context.Context, string, []string, string) ([]pluginsdk.RemoveResult, error) {
	return nil, readOnly()
}

// Withdraw implements pluginsdk.Provider: unsupported.
func (p *Provider) Withdraw(context.Context, string, int, string) (pluginsdk.WithdrawResult, error) {
	return pluginsdk.WithdrawResult{}, readOnly()
}

// Protect implements pluginsdk.Provider: unsupported.
func (p *Provider) Protect(context.Context, string, []string, bool) error { return readOnly() }

// Watch implements pluginsdk.Provider: unsupported.
func (p *Provider) Watch(context.Context, []string, func(pluginsdk.Interruption)) error {
	return pluginsdk.Errorf(pluginsdk.KindUnsupported, "this version of ec2asg does not listen for interruptions")
}

// Close implements pluginsdk.Provider. There is nothing to release.
func (p *Provider) Close(context.Context) error { return nil }
