package ec2asg

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Version of this plugin, semver.
const Version = "0.1.0"

// Provider reads Auto Scaling groups.
type Provider struct {
	pluginsdk.ReadOnly
	configured pluginsdk.Configured[session]
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
	var c config
	if err := pluginsdk.DecodeConfig(raw, &c); err != nil {
		return err
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(c.Region))
	if err != nil {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "load the AWS configuration: %w", err)
	}
	client := autoscaling.NewFromConfig(cfg, func(o *autoscaling.Options) {
		o.Retryer = aws.NopRetryer{} // the control plane decides when to ask again
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
	})
	return p.configured.Set(&session{groups: c.Groups.Set(), credentials: cfg.Credentials, client: client})
}

// Status implements pluginsdk.Provider.
func (p *Provider) Status(ctx context.Context, names []string) ([]pluginsdk.GroupStatus, error) {
	if err := pluginsdk.CheckGroups(names); err != nil {
		return nil, err
	}
	s, err := p.configured.Get()
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
	s, err := p.configured.Get()
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

// Close implements pluginsdk.Provider. There is nothing to release.
func (p *Provider) Close(context.Context) error { return nil }
