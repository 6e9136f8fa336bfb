package notices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The errors of this package, for errors.Is.
var (
	// ErrOptions: an option is wrong.
	ErrOptions = errors.New("invalid metadata options")
	// ErrUnanswered: the metadata service did not say what it was asked for.
	ErrUnanswered = errors.New("no answer from the metadata service")
)

const (
	// DefaultEndpoint is where both clouds answer. The address is asked, and not a
	// name, so that no name service can send us elsewhere.
	DefaultEndpoint = "http://169.254.169.254"

	// askWithin bounds one call. The service is on the same host; what takes longer
	// is not coming.
	askWithin = 2 * time.Second
	// identifyWithin bounds all attempts to learn the instance's id: early in a boot
	// the network may not be there yet.
	identifyWithin = 30 * time.Second
	// retryFirst and retryMost bound the wait after a failure. The longest leaves most
	// of the two minutes that a spot notice gives.
	retryFirst = time.Second
	retryMost  = 30 * time.Second
	// maxInstanceBytes bounds the id of an instance [bytes], as the router does.
	maxInstanceBytes = 128
)

// Options say whom to ask.
type Options struct {
	Cloud    Cloud
	Endpoint string       // "": DefaultEndpoint. Loopback and link-local addresses only
	Log      *slog.Logger // nil: silent

	// Every is how often AWS's service is asked; 0: PollEvery. For tests.
	Every time.Duration
}

// source is one cloud's metadata service.
type source interface {
	// instanceID is the id by which the provider names the instance.
	instanceID(ctx context.Context) (string, error)
	// watch calls tell for what it hears, also more than once, until ctx ends.
	watch(ctx context.Context, tell func(Notice))
}

// Watcher asks one cloud's metadata service.
type Watcher struct {
	cloud  Cloud
	source source // nil: nobody is asked
}

// Open returns a watcher of the cloud that Options name, or finds out which it is.
// Not to find one is no error: nobody is asked then.
func Open(ctx context.Context, o Options) (*Watcher, error) {
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	if o.Every == 0 {
		o.Every = PollEvery
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Cloud == NoCloud {
		return &Watcher{cloud: NoCloud}, nil
	}
	endpoint, err := checkEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	aws, gce := newIMDS(endpoint, &o), newMetadataServer(endpoint, &o)
	switch o.Cloud {
	case AWS:
		return &Watcher{AWS, aws}, nil
	case GCE:
		return &Watcher{GCE, gce}, nil
	case Auto:
		return probe(ctx, aws, gce), nil
	default:
		_, err := ParseCloud(string(o.Cloud))
		return nil, err
	}
}

// probe asks both services who they are. Only Google's answers carry its header,
// and it has no tokens to give, so that at most one can be right.
func probe(ctx context.Context, aws *imds, gce *metadataServer) *Watcher {
	isGCE := make(chan bool, 1)
	go func() {
		_, err := gce.instanceID(ctx)
		isGCE <- err == nil
	}()
	err := aws.renew(ctx)
	switch {
	case <-isGCE:
		return &Watcher{GCE, gce}
	case err == nil:
		return &Watcher{AWS, aws}
	default:
		return &Watcher{cloud: NoCloud}
	}
}

// checkEndpoint keeps the questions on this machine's own links: what answers
// elsewhere could be anybody.
func checkEndpoint(text string) (string, error) {
	refused := fmt.Errorf("%w: metadata endpoint %.60q: use http:// with a loopback or link-local address", ErrOptions, text)
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", refused
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil || !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && ip != imdsOverIPv6 {
		return "", refused
	}
	return "http://" + u.Host, nil
}

// imdsOverIPv6 is where AWS answers over IPv6: not link-local, but reachable from
// the instance only. See "Use the Instance Metadata Service to access instance
// metadata" in the EC2 User Guide.
var imdsOverIPv6 = netip.MustParseAddr("fd00:ec2::254")

// Cloud is whose service is asked; never Auto.
func (w *Watcher) Cloud() Cloud { return w.cloud }

// InstanceID asks for the id by which the provider names this instance. It tries
// again for a while.
func (w *Watcher) InstanceID(ctx context.Context) (string, error) {
	if w.source == nil {
		return "", fmt.Errorf("%w: no cloud to ask for the instance's id", ErrUnanswered)
	}
	id, err := backoff.Retry(ctx, func() (string, error) { return w.source.instanceID(ctx) },
		backoff.WithBackOff(newBackoff(retryFirst)), backoff.WithMaxElapsedTime(identifyWithin))
	if err != nil {
		return "", fmt.Errorf("ask %s for the instance's id: %w", w.cloud, err)
	}
	return id, nil
}

// Watch delivers each notice that says more than those before it, until ctx ends.
// Whoever receives must go on receiving until then.
func (w *Watcher) Watch(ctx context.Context) <-chan Notice {
	heard, news := make(chan Notice), make(chan Notice)
	if w.source == nil {
		return news
	}
	go w.source.watch(ctx, func(n Notice) {
		select {
		case heard <- n:
		case <-ctx.Done():
		}
	})
	go sift(ctx, heard, news)
	return news
}

// sift hands on what is news.
func sift(ctx context.Context, heard <-chan Notice, news chan<- Notice) {
	var known Notice
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-heard:
			if !n.Supersedes(known) {
				continue
			}
			known = n
			select {
			case news <- n:
			case <-ctx.Done():
				return
			}
		}
	}
}

func newBackoff(first time.Duration) *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{InitialInterval: first, MaxInterval: retryMost, Multiplier: 2, RandomizationFactor: 0.5}
}

// pace is how long to wait before the next question, and says once that they fail
// and once that they don't any more.
type pace struct {
	log     *slog.Logger
	what    string
	every   time.Duration // between questions that were answered
	backoff *backoff.ExponentialBackOff
	failing bool
}

func newPace(log *slog.Logger, what string, every time.Duration) *pace {
	return &pace{log: log, what: what, every: every, backoff: newBackoff(min(every, retryFirst))}
}

func (p *pace) next(ctx context.Context, err error) time.Duration {
	switch {
	case err == nil:
		if p.failing {
			p.log.Info("the metadata service answers again", "asked_for", p.what)
		}
		p.failing = false
		p.backoff.Reset()
		return p.every
	case !p.failing && ctx.Err() == nil:
		p.failing = true
		p.log.Warn("not told of interruptions for now", "asked_for", p.what, "error", err)
	}
	return p.backoff.NextBackOff()
}

// pause waits; false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
