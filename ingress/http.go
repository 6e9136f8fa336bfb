package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

// Proxy serves /jobs/{id}/proxy/{port}/… from an HTTP server on the loopback of a running
// job's environment. Each request is a session of its own, so that each is somebody's;
// upgrades (WebSocket) and streams pass.
type Proxy struct {
	service *Service
	guard   *access.Guard
	proxy   *httputil.ReverseProxy
}

// answerWithin is how long a job's server may take to begin its answer.
const answerWithin = time.Minute

// NewProxy makes a Proxy whose callers guard knows.
func NewProxy(service *Service, guard *access.Guard) *Proxy {
	p := &Proxy{service: service, guard: guard}
	p.proxy = &httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     roundTripper{service},
		FlushInterval: -1,                         // at once: what is looked at may be a log that grows
		ErrorLog:      log.New(io.Discard, "", 0), // of connections that broke: the audit has them
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) },
	}
	return p
}

// place is where a request goes.
type place struct {
	job    spillway.JobID
	port   int
	prefix string // the path up to and without the slash before the rest
	rest   string // escaped, with its slash
}

type placeKey struct{}

const (
	jobsPrefix   = "/jobs/"
	proxySegment = "proxy"
)

// parse reads an escaped path. Nothing of the rest is cleaned: it is the job's.
func parse(escaped string) (p place, ok bool) {
	after, ok := strings.CutPrefix(escaped, jobsPrefix)
	if !ok {
		return p, false
	}
	parts := strings.SplitN(after, "/", 4)
	if len(parts) < 3 || parts[1] != proxySegment {
		return p, false
	}
	id, err := url.PathUnescape(parts[0])
	if err != nil || id == "" {
		return p, false
	}
	port, err := strconv.Atoi(parts[2])
	if err != nil || port < 1 || port > 65535 || strconv.Itoa(port) != parts[2] {
		return p, false
	}
	p = place{job: spillway.JobID(id), port: port, prefix: jobsPrefix + strings.Join(parts[:3], "/")}
	if len(parts) == 4 {
		p.rest = "/" + parts[3]
	}
	return p, true
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at, ok := parse(r.URL.EscapedPath())
	if !ok {
		http.Error(w, "there is only /jobs/{id}/proxy/{port}/… here", http.StatusNotFound)
		return
	}
	ctx, err := p.guard.HTTP(r, access.Debug)
	if err != nil {
		if access.HTTPStatus(err) == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, status.Convert(err).Message(), access.HTTPStatus(err))
		return
	}
	if why := foreign(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	if at.rest == "" { // else relative links would lead out of the job
		to := at.prefix + "/"
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		return
	}
	p.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, placeKey{}, at)))
}

// foreign is why a request is refused that another site has a browser make: it would come
// with the person's certificate.
func foreign(r *http.Request) string {
	const why = "this request was made by another site: open the address yourself"
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return why
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return ""
	}
	if r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet {
		return "" // a link that the person has followed
	}
	return why
}

// rewrite makes the request to the job's server. What proves who the person is stays here.
func rewrite(r *httputil.ProxyRequest) {
	at, _ := r.In.Context().Value(placeKey{}).(place)
	path, err := url.PathUnescape(at.rest)
	if err != nil {
		path = at.rest // it came out of a URL that was parsed
	}
	r.Out.URL = &url.URL{
		Scheme: "http", Host: net.JoinHostPort("localhost", strconv.Itoa(at.port)),
		Path: path, RawPath: at.rest, RawQuery: r.In.URL.RawQuery,
	}
	r.Out.Host = r.Out.URL.Host
	r.Out.Header.Del("Authorization")
	r.SetXForwarded()
	r.Out.Header.Set("X-Forwarded-Prefix", at.prefix)
}

// roundTripper makes each request on a session of its own.
type roundTripper struct{ service *Service }

// RoundTrip implements http.RoundTripper.
func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	at, _ := r.Context().Value(placeKey{}).(place)
	ctx := r.Context()
	one := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: answerWithin,
		MaxResponseHeaderBytes: 64 << 10,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return t.service.dial(ctx, at)
		},
	}
	return one.RoundTrip(r)
}

// dial opens a session with a port. It ends with the connection.
func (s *Service) dial(ctx context.Context, at place) (net.Conn, error) {
	l, err := s.begin(ctx, request{
		kind: kindHTTP, object: fmt.Sprintf("http port %d", at.port), job: at.job,
		target: &debugv1.Target{Target: &debugv1.Target_Port{Port: &debugv1.Port{Port: int32(at.port)}}},
	})
	if err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	go func() {
		defer ours.Close()
		_ = l.run(ctx, pipeCaller{ours}, nil) // it is in the audit
	}()
	return theirs, nil
}

// httpCodes are what a status means here.
var httpCodes = map[codes.Code]int{
	codes.InvalidArgument: http.StatusBadRequest, codes.Unauthenticated: http.StatusUnauthorized, codes.PermissionDenied: http.StatusForbidden,
	codes.NotFound: http.StatusNotFound, codes.FailedPrecondition: http.StatusConflict, codes.ResourceExhausted: http.StatusTooManyRequests,
	codes.Unavailable: http.StatusServiceUnavailable, codes.DeadlineExceeded: http.StatusGatewayTimeout,
}

// refuse answers a request that did not come to the job's server, or not back.
func refuse(w http.ResponseWriter, err error) {
	if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
		http.Error(w, fmt.Sprintf("the job's server did not begin its answer within %s", answerWithin), http.StatusGatewayTimeout)
		return
	}
	st, ok := status.FromError(err)
	code, known := httpCodes[st.Code()]
	if !ok || !known {
		http.Error(w, "the job's server did not answer in order", http.StatusBadGateway)
		return
	}
	http.Error(w, st.Message(), code)
}
