package ec2asg

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// requestTimeout bounds one request, connecting and reading the answer included. It
// is longer than the longest call (a long poll) and shorter than anybody's patience;
// the deadlines of the control plane are what ends a call normally.
const requestTimeout = 30 * time.Second

// maxConnections bounds the connections to one service. A thousand groups that want
// to grow at once wait for them a moment, instead of a thousand handshakes.
const maxConnections = 64

// session is what Configure makes. The fields never change; what they point to has
// locks of its own.
type session struct {
	config   *config
	groups   map[string]bool
	now      func() time.Time
	budget   *pluginsdk.Budget
	pressure *pressure

	credentials aws.CredentialsProvider
	scaling     *autoscaling.Client
	ec2         *ec2.Client
	queue       *sqs.Client
	cloudwatch  *cloudwatch.Client

	reader     *reader
	line       *line
	groupLocks *locks
	ended      *ended
	homes      *homes
	machines   *machines
	activities *activities
	hooks      *hooks
	refreshes  *rota[bool]
}

func newSession(ctx context.Context, c *config, o Options) (*session, error) {
	cfg, err := loadAWS(ctx, c, o)
	if err != nil {
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "load the AWS configuration: %w", err)
	}
	s := &session{
		config: c, groups: c.Groups.Set(), now: o.Now, credentials: cfg.Credentials,
		scaling: autoscaling.NewFromConfig(cfg, func(o *autoscaling.Options) {
			o.BaseEndpoint = address(c.Endpoints.AutoScaling, c.Endpoint, o.BaseEndpoint)
		}),
		ec2: ec2.NewFromConfig(cfg, func(o *ec2.Options) {
			o.BaseEndpoint = address(c.Endpoints.EC2, c.Endpoint, o.BaseEndpoint)
		}),
		queue: sqs.NewFromConfig(cfg, func(o *sqs.Options) {
			o.BaseEndpoint = address(c.Endpoints.SQS, c.Endpoint, o.BaseEndpoint)
		}),
		cloudwatch: cloudwatch.NewFromConfig(cfg, func(o *cloudwatch.Options) {
			o.BaseEndpoint = address(c.Endpoints.CloudWatch, c.Endpoint, o.BaseEndpoint)
		}),
		line: newLine(), groupLocks: newLocks(),
	}
	if c.APIRate != nil {
		s.budget = pluginsdk.NewBudget(c.APIRate.kept())
	}
	s.reader = newReader(s.now, s.describe, c.Groups)
	s.pressure = &pressure{now: s.now}
	s.ended = newEnded(s.now)
	s.homes = newHomes(s.now)
	s.machines = newMachines(s.now, s.describeMachines)
	s.activities = newActivities(s.now, s.describeActivities)
	s.hooks = newHooks(s)
	s.refreshes = newRota[bool](s.now)
	return s, nil
}

func loadAWS(ctx context.Context, c *config, o Options) (aws.Config, error) {
	options := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithRegion(c.Region),
		awsconfig.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }), // the control plane decides when to ask again
		awsconfig.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(requestTimeout).WithTransportOptions(func(t *http.Transport) {
			t.MaxConnsPerHost, t.MaxIdleConnsPerHost = maxConnections, maxConnections
		})),
	}
	if o.AccessKeyID != "" {
		options = append(options, awsconfig.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(o.AccessKeyID, o.SecretAccessKey, "")))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return cfg, err
	}
	if o.HTTP != nil {
		cfg.HTTPClient = o.HTTP // not before: a CA bundle of the environment is only added to AWS's own
	}
	cfg.HTTPClient = plainBody{cfg.HTTPClient}
	return cfg, nil
}

// plainBody hides all but Read and Close of what is sent. The SDK closes a body as soon
// as the answer is there, and its WriteTo fails from then on (smithy-go v1.28,
// transport/http/internal/io/safe.go). net/http may look for the body's end only then:
// it takes the failure for a broken request, and closes the connection below the answer.
type plainBody struct{ next aws.HTTPClient }

// Do implements aws.HTTPClient.
func (c plainBody) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return c.next.Do(r)
}

// address is the first that is set; nil = AWS's own.
func address(own, all string, fallback *string) *string {
	switch {
	case own != "":
		return aws.String(own)
	case all != "":
		return aws.String(all)
	default:
		return fallback
	}
}

// send makes one call: it takes its turn in the budget, makes sure that there are
// credentials, and makes an error of the contract of what comes back.
func send[I, O, Opt any](ctx context.Context, s *session, call func(context.Context, *I, ...func(*Opt)) (*O, error), in *I) (*O, error) {
	if err := s.budget.Take(ctx); err != nil {
		return nil, err
	}
	return sendNow(ctx, s, call, in)
}

// sendNow is send for a call whose turn it is already.
func sendNow[I, O, Opt any](ctx context.Context, s *session, call func(context.Context, *I, ...func(*Opt)) (*O, error), in *I) (*O, error) {
	if _, err := s.credentials.Retrieve(ctx); err != nil { // kept until they expire
		return nil, noCredentials(ctx, err)
	}
	out, err := call(ctx, in)
	if err == nil {
		return out, nil
	}
	classified := classify(err)
	if classified.Kind == pluginsdk.KindThrottled {
		s.budget.Throttled(classified.RetryAfter)
		classified.RetryAfter = max(classified.RetryAfter, s.pressure.refused())
	}
	return nil, classified
}
