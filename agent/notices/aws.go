package notices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// PollEvery is how often AWS's service is asked: "We recommend that you check for
// these interruption notices every 5 seconds" (EC2 User Guide, "Spot Instance
// interruption notices").
const PollEvery = 5 * time.Second

// What the service calls things: EC2 User Guide, "Use the Instance Metadata Service
// to access instance metadata", and the pages that are named below.
const (
	tokenPath   = "/latest/api/token"
	tokenHeader = "X-Aws-Ec2-Metadata-Token"
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"

	instanceIDPath = "/latest/meta-data/instance-id"
	// spotPath: 404, or {"action": "terminate|stop|hibernate", "time": "…Z"}
	// ("Spot Instance interruption notices").
	spotPath = "/latest/meta-data/spot/instance-action"
	// rebalancePath: 404, or {"noticeTime": "…Z"} ("EC2 instance rebalance
	// recommendations").
	rebalancePath = "/latest/meta-data/events/recommendations/rebalance"
	// lifecyclePath: 404 outside of a group, or a state, such as InService (EC2 Auto
	// Scaling User Guide, "Retrieve the target lifecycle state through instance
	// metadata"). It says Terminated as soon as a terminating hook holds the instance.
	lifecyclePath = "/latest/meta-data/autoscaling/target-lifecycle-state"
)

const (
	// tokenTTL is the longest that the service grants: six hours.
	tokenTTL = 6 * time.Hour
	// maxTokenBytes bounds a token [bytes]; it is 56 bytes long.
	maxTokenBytes = 1 << 10
)

// imds is AWS's instance metadata service, version 2. One goroutine uses it at a
// time.
type imds struct {
	endpoint string
	client   *http.Client
	every    time.Duration
	pace     *pace

	token   string
	renewAt time.Time
}

func newIMDS(endpoint string, o *Options) *imds {
	return &imds{
		endpoint: endpoint, client: newClient(), every: o.Every,
		pace: newPace(o.Log, "AWS instance metadata", o.Every),
	}
}

// renew gets a new token. The service refuses to give one through a proxy, and its
// answer does not travel further than the instance's hop limit: with the limit 1
// that it should have, a container with a network of its own gets none.
func (s *imds) renew(ctx context.Context) error {
	header := http.Header{ttlHeader: {strconv.Itoa(int(tokenTTL.Seconds()))}}
	a, err := ask(ctx, s.client, http.MethodPut, s.endpoint+tokenPath, header, askWithin)
	if err != nil {
		return fmt.Errorf("IMDSv2 gives no token (in a container, use the host's network): %w", err)
	}
	if !shortText(a.body, maxTokenBytes) {
		return fmt.Errorf("%w: what it gives is no token", ErrUnanswered)
	}
	ttl := tokenTTL
	if seconds, err := strconv.Atoi(a.header.Get(ttlHeader)); err == nil && seconds > 0 {
		ttl = min(ttl, time.Duration(seconds)*time.Second)
	}
	s.token, s.renewAt = a.body, time.Now().Add(ttl/2)
	return nil
}

// haveToken renews the token when half of its life is over.
func (s *imds) haveToken(ctx context.Context) error {
	if s.token != "" && time.Now().Before(s.renewAt) {
		return nil
	}
	return s.renew(ctx)
}

// get asks for one item. A token that the service does not know any more is
// replaced, once: it may have expired, or the instance was stopped and started.
func (s *imds) get(ctx context.Context, path string) (string, error) {
	if err := s.haveToken(ctx); err != nil {
		return "", err
	}
	body, err := s.getWithToken(ctx, path)
	if !errors.Is(err, errToken) {
		return body, err
	}
	if err := s.renew(ctx); err != nil {
		return "", err
	}
	body, err = s.getWithToken(ctx, path)
	if errors.Is(err, errToken) {
		s.token = ""
	}
	return body, err
}

func (s *imds) getWithToken(ctx context.Context, path string) (string, error) {
	a, err := ask(ctx, s.client, http.MethodGet, s.endpoint+path, http.Header{tokenHeader: {s.token}}, askWithin)
	return a.body, err
}

func (s *imds) instanceID(ctx context.Context) (string, error) {
	id, err := s.get(ctx, instanceIDPath)
	if err != nil {
		return "", err
	}
	return checkInstanceID(id)
}

// watch polls: the service has no way to wait for a change.
func (s *imds) watch(ctx context.Context, tell func(Notice)) {
	for {
		heard, err := s.look(ctx)
		for _, n := range heard {
			tell(n)
		}
		if !pause(ctx, s.pace.next(ctx, err)) {
			return
		}
	}
}

// look asks for everything that could be a notice. What was heard counts also when
// another question failed.
func (s *imds) look(ctx context.Context) (heard []Notice, err error) {
	if err := s.haveToken(ctx); err != nil {
		return nil, err
	}
	for _, item := range []struct {
		path string
		read func(body string) (Notice, error)
	}{{spotPath, readSpot}, {lifecyclePath, readLifecycle}, {rebalancePath, readRebalance}} {
		body, askErr := s.get(ctx, item.path)
		if askErr != nil {
			err = errors.Join(err, unless(askErr, errAbsent))
			continue
		}
		n, readErr := item.read(body)
		if readErr != nil {
			err = errors.Join(err, fmt.Errorf("%w: %s: %w", ErrUnanswered, item.path, readErr))
			continue
		}
		if n.Kind != None {
			heard = append(heard, n)
		}
	}
	return heard, err
}

// readSpot reads a spot notice. Without a time that can be read it is one all the
// same.
func readSpot(body string) (Notice, error) {
	var m struct{ Action, Time string }
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		return Notice{}, err
	}
	switch m.Action {
	case "terminate", "stop", "hibernate":
	default:
		return Notice{}, fmt.Errorf("action %.20q", m.Action)
	}
	at, err := time.Parse(time.RFC3339, m.Time)
	if err != nil {
		at = time.Time{}
	}
	return Notice{Spot, at}, nil
}

func readRebalance(body string) (Notice, error) {
	var m struct{ NoticeTime string }
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		return Notice{}, err
	}
	if m.NoticeTime == "" {
		return Notice{}, errors.New("no noticeTime")
	}
	return Notice{Kind: Rebalance}, nil
}

// readLifecycle: an instance of a warm pool that ends is Warmed:Terminated.
func readLifecycle(body string) (Notice, error) {
	switch body {
	case "Terminated", "Warmed:Terminated":
		return Notice{Kind: Terminating}, nil
	default:
		return Notice{}, nil
	}
}
