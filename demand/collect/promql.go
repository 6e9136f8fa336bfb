package collect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// DefaultQueryTimeout is how long a query may take where the caller sets no shorter
	// time.
	DefaultQueryTimeout = 10 * time.Second
	// maxAnswerBytes bounds the answer to a query [bytes]: one number takes a hundred.
	maxAnswerBytes = 1 << 20
	// notPrometheus is said of what comes from somebody else.
	notPrometheus = "answers with what is no answer of Prometheus: correct prometheus.url"
	// stringValue is in the client's error for a kind of answer that it can't read: a
	// string, the one kind that Prometheus has besides those below.
	stringValue = "unexpected value type"
	// idleConnection is how long the connection to a Prometheus server is kept.
	idleConnection = 90 * time.Second
)

// PrometheusOptions say which question a Prometheus server is asked.
type PrometheusOptions struct {
	URL    string // of the server, with what its paths begin with
	Query  string // PromQL whose answer is one number of jobs
	CAFile string // empty: the system's
	// Token returns the bearer token of each request; nil: none is sent.
	Token     func() (string, error)
	Timeout   time.Duration     // of one query
	Transport http.RoundTripper // nil: connections of its own
}

// Prometheus is a query whose answer is one number. It is safe for concurrent use.
type Prometheus struct {
	api     promv1.API
	name    string // of the server, in sentences
	query   string
	timeout time.Duration
}

// NewPrometheus checks the options and asks nothing.
func NewPrometheus(o PrometheusOptions) (*Prometheus, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("prometheus.url: write http:// or https://, a host, and what the server's paths begin with")
	}
	if strings.TrimSpace(o.Query) == "" {
		return nil, errors.New("prometheus.query: write a query whose answer is one number")
	}
	transport := o.Transport
	if transport == nil {
		if transport, err = proxiedTransport(o.CAFile); err != nil {
			return nil, fmt.Errorf("prometheus.%w", err)
		}
	}
	client, err := api.NewClient(api.Config{Address: o.URL, Client: withoutRedirects(&careful{transport, o.Token})})
	if err != nil {
		return nil, fmt.Errorf("prometheus.url: %w", err)
	}
	return &Prometheus{
		api: promv1.NewAPI(client), name: u.Scheme + "://" + u.Host + u.Path, query: o.Query,
		timeout: cmp.Or(o.Timeout, DefaultQueryTimeout),
	}, nil
}

// proxiedTransport is for a server that may be anywhere.
func proxiedTransport(caFile string) (*http.Transport, error) {
	t, err := directTransport(caFile, idleConnection)
	if err == nil {
		t.Proxy = http.ProxyFromEnvironment
	}
	return t, err
}

// Count asks. Its error is a *pluginsdk.Error with a sentence that says what is wrong
// and what to do. No value is an error, never 0.
func (p *Prometheus) Count(ctx context.Context) (pluginsdk.Count, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	asked := time.Now()
	value, warnings, _, err := p.api.Query(ctx, p.query, time.Time{}) // at the server's own time
	if err != nil {
		return pluginsdk.Count{}, p.unanswered(err)
	}
	if len(warnings) > 0 {
		return pluginsdk.Count{}, p.fault(pluginsdk.KindTransient, "answers with a warning, so that a part may be missing: %s", clip(warnings[0]))
	}
	count, err := p.number(value)
	if err == nil && count.At.After(asked) {
		count.At = asked // its clock is ahead of ours: no value is newer than the question
	}
	return count, err
}

// fault is an error that begins with what was asked.
func (p *Prometheus) fault(kind pluginsdk.Kind, format string, args ...any) *pluginsdk.Error {
	return pluginsdk.Errorf(kind, "query %q: %s %s", clip(p.query), p.name, fmt.Sprintf(format, args...))
}

// number reads the one number of an answer.
func (p *Prometheus) number(value model.Value) (pluginsdk.Count, error) {
	var jobs float64
	var at model.Time
	switch v := value.(type) {
	case *model.Scalar:
		jobs, at = float64(v.Value), v.Timestamp
	case model.Vector:
		switch {
		case len(v) == 0:
			return pluginsdk.Count{}, p.fault(pluginsdk.KindTransient, "has no value, and no value is not 0: write the query so that it has one as long as its source lives, such as sum(gitlab_runner_jobs) or 0 * sum(gitlab_runner_concurrent)")
		case len(v) > 1:
			return pluginsdk.Count{}, p.fault(pluginsdk.KindInvalid, "answers with %d series instead of one number: put sum() around it", len(v))
		case v[0].Histogram != nil:
			return pluginsdk.Count{}, p.fault(pluginsdk.KindInvalid, "answers with a histogram instead of a number: take histogram_count() or another number of it")
		}
		jobs, at = float64(v[0].Value), v[0].Timestamp
	case model.Matrix:
		return pluginsdk.Count{}, p.fault(pluginsdk.KindInvalid, "answers with values over a range of time instead of one number: take the range away, or put max_over_time() around it")
	default:
		return pluginsdk.Count{}, p.fault(pluginsdk.KindInvalid, notPrometheus)
	}
	switch {
	case math.IsNaN(jobs):
		return pluginsdk.Count{}, p.fault(pluginsdk.KindInvalid, "answers with NaN, which is no number of jobs: it divides 0 by 0, or its source says so")
	case math.IsInf(jobs, 0):
		return pluginsdk.Count{}, p.fault(pluginsdk.KindInvalid, "answers with %g, which is no number of jobs: it divides by 0", jobs)
	case jobs < 0:
		return pluginsdk.Count{}, p.fault(pluginsdk.KindInvalid, "answers with %g, and there are no fewer than 0 jobs: put clamp_min(…, 0) around it if it is a difference", jobs)
	}
	return pluginsdk.Count{Jobs: jobs, At: at.Time()}, nil
}

// unanswered says why there was no value, and whose fault it is.
func (p *Prometheus) unanswered(err error) error {
	var refused *answerError
	var said *promv1.Error
	switch {
	case errors.As(err, &refused):
		return p.fault(refused.kind, "%s", refused.sentence)
	case errors.As(err, &said) && (said.Type == promv1.ErrBadData || said.Type == promv1.ErrExec):
		return p.fault(pluginsdk.KindInvalid, "refuses it: %s", clip(said.Msg))
	case errors.As(err, &said) && said.Type == promv1.ErrBadResponse && strings.Contains(said.Msg, stringValue):
		return p.fault(pluginsdk.KindInvalid, "answers with a string instead of a number")
	case errors.As(err, &said) && said.Type == promv1.ErrBadResponse:
		return p.fault(pluginsdk.KindInvalid, notPrometheus)
	case errors.As(err, &said):
		return p.fault(pluginsdk.KindTransient, "can't answer now: %s", clip(wordsOf(said)))
	default:
		_, why := networkFault(err)
		return p.fault(pluginsdk.KindTransient, "%s", why)
	}
}

// wordsOf is what Prometheus itself says of an error of its own; the client looks into
// the answers to bad queries only.
func wordsOf(err *promv1.Error) string {
	var answer struct {
		Error string `json:"error"`
	}
	if json.Unmarshal([]byte(err.Detail), &answer) != nil || answer.Error == "" {
		return err.Msg
	}
	return answer.Error
}

// careful sends the token, bounds answers, and refuses those that are none, before
// anybody reads them.
type careful struct {
	next  http.RoundTripper
	token func() (string, error)
}

// answerError is why an answer is refused.
type answerError struct {
	kind     pluginsdk.Kind
	sentence string // begins with its verb
}

func (e *answerError) Error() string { return e.sentence }

// RoundTrip implements http.RoundTripper.
func (c *careful) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.token != nil {
		token, err := c.token()
		if err != nil {
			return nil, &answerError{pluginsdk.KindAuth, "is not asked, because its token can't be read: " + clip(err.Error())}
		}
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := checkAnswer(resp); err != nil {
		_ = resp.Body.Close() // nothing of it is wanted
		return nil, err
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxAnswerBytes}
	return resp, nil
}

// checkAnswer lets through what Prometheus itself says, good or bad. On 405 and 501 the
// client asks again with GET.
func checkAnswer(resp *http.Response) error {
	code := resp.StatusCode
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return &answerError{pluginsdk.KindAuth, fmt.Sprintf("answers with status %d: set prometheus.token to one that may query", code)}
	case code == http.StatusTooManyRequests:
		return &answerError{pluginsdk.KindThrottled, "answers with status 429: it is asked too often, make count.every longer"}
	case code >= 300 && code < 400:
		return &answerError{pluginsdk.KindInvalid, fmt.Sprintf("redirects to %q: write that address, or the one behind it, in prometheus.url", clip(redirectTo(resp)))}
	case code == http.StatusMethodNotAllowed, code == http.StatusNotImplemented, kind == "application/json":
		return nil
	case code == http.StatusOK:
		return &answerError{pluginsdk.KindInvalid, fmt.Sprintf("answers with %q instead of JSON: prometheus.url is of something else, or a login page is before it", clip(kind))}
	case code == http.StatusNotFound:
		return &answerError{pluginsdk.KindInvalid, "answers with status 404: prometheus.url lacks what the server's paths begin with, or is of something else"}
	case code >= 500:
		return &answerError{pluginsdk.KindTransient, fmt.Sprintf("answers with status %d", code)}
	default:
		return &answerError{pluginsdk.KindInvalid, fmt.Sprintf("answers with status %d: correct prometheus.url", code)}
	}
}

// redirectTo is where a redirect leads, without what may be a secret of it.
func redirectTo(resp *http.Response) string {
	u, err := resp.Location()
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// boundedBody fails a body that is longer than it may be.
type boundedBody struct {
	io.ReadCloser

	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if len(p) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return n, &answerError{pluginsdk.KindInvalid, fmt.Sprintf("answers with more than %d bytes instead of one number: put sum() around it", maxAnswerBytes)}
	}
	return n, err
}
