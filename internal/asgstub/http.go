package asgstub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxBody bounds a request [bytes].
const maxBody = 2 << 20

// The services, as a signature names them.
const (
	serviceASG = "autoscaling"
	serviceEC2 = "ec2"
	serviceSTS = "sts"
	serviceSQS = "sqs"
	serviceCW  = "monitoring"
)

// versions tells the Query APIs apart.
var versions = map[string]string{
	"2011-01-01": serviceASG,
	"2016-11-15": serviceEC2,
	"2011-06-15": serviceSTS,
}

// exchange is one call under way.
type exchange struct {
	c       *Cloud
	service string
	op      string
	who     string // access key id
	region  string // that the request is signed for
	host    string
	id      string // of the request
	wire    wire
	p       *params        // of the Query APIs
	w       xmlWriter      // of the Query APIs
	in      map[string]any // of the others
	out     map[string]any // of the others
	faults  *faultState
	wait    time.Duration // ask again when something is new, but no longer than this
}

// wire is one of the protocols.
type wire interface {
	// answer writes the answer, or the failure if there is one.
	answer(w http.ResponseWriter, x *exchange, f *failure)
}

// ServeHTTP implements [http.Handler] for all services.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, f := c.read(r)
	if f == nil {
		f = c.serve(x, r)
	}
	if f != nil && f.hang {
		if c.opts.Now != nil { // nothing waits on a clock of the caller's
			w.Header().Set("X-Asgstub-Hang", "true")
			w.WriteHeader(f.status)
			return
		}
		<-r.Context().Done()
		return
	}
	w.Header().Set("X-Amzn-Requestid", x.id)
	x.wire.answer(w, x, f)
}

// serve does the call. One that waits for something new is done again when there
// is, until its time is over.
func (c *Cloud) serve(x *exchange, r *http.Request) *failure {
	var f *failure
	var began time.Time
	for {
		var wake chan struct{}
		c.do(func() {
			first := began.IsZero()
			if first {
				began = c.mu.now
			}
			f = c.answer(x, first)
			wake = c.mu.wake
		})
		left := x.wait - c.clock().Sub(began)
		if f != nil || left <= 0 || c.opts.Now != nil {
			return f
		}
		if !waitFor(r.Context(), wake, left) {
			return nil // nobody reads the answer
		}
	}
}

// waitFor returns after d, or when wake is closed; false if ctx has ended.
func waitFor(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// answer does one call with the lock. Only the first try of a call counts.
func (c *Cloud) answer(x *exchange, first bool) *failure {
	op, known := operations[x.service][x.op]
	if !first {
		return asFailure(op.do(x))
	}
	call := c.newCall(x)
	x.faults = c.faultsFor(call.Group)
	f := c.refuse(x, known)
	var lost *failure
	if f == nil {
		if fault := x.faults.call(x.op, c.mu.now, c.mu.rng); fault != nil {
			lost = fault.failure(x)
			if !fault.Applied {
				f = lost
			}
		}
	}
	if f == nil {
		f = asFailure(op.do(x))
	}
	f = cmp.Or(f, lost)
	if f != nil {
		call.Code = f.code
	}
	c.mu.calls.add(call)
	return f
}

// refuse is why a call is not even tried.
func (c *Cloud) refuse(x *exchange, known bool) *failure {
	switch {
	case !c.mu.bucket.take(c.mu.now):
		return (&CallFault{Code: codeThrottling}).failure(x)
	case c.opts.Region != "" && x.region != c.opts.Region:
		return &failure{
			code: codeSignature, status: http.StatusForbidden,
			message: fmt.Sprintf("Credential should be scoped to a valid region, not '%s'.", x.region),
		}
	case !known:
		return &failure{
			code: codeInvalidAction, status: http.StatusBadRequest,
			message: fmt.Sprintf("The stand-in does not know the operation %s of %s.", x.op, x.service),
		}
	}
	return nil
}

func asFailure(err error) *failure {
	var f *failure
	if err == nil || errors.As(err, &f) {
		return f
	}
	return &failure{code: "InternalFailure", message: err.Error(), status: http.StatusInternalServerError}
}

// faultsFor are the faults of the group that a call is about, or the default ones.
func (c *Cloud) faultsFor(name string) *faultState {
	if g := c.mu.groups[name]; g != nil {
		return g.faults
	}
	return c.mu.faults
}

// read works out which operation of which service is meant, and who asks. There
// is an exchange to answer on even with a failure.
func (c *Cloud) read(r *http.Request) (*exchange, *failure) {
	x := &exchange{c: c, host: r.Host, wire: queryWire{}, service: serviceASG}
	c.locked(func() {
		c.mu.requestNo++
		x.id = requestID(c.opts.Seed, c.mu.requestNo)
	})
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(body) > maxBody {
		return x, &failure{code: codeMalformed, message: "the request cannot be read", status: http.StatusBadRequest}
	}
	f := x.route(r, body)
	var signed string
	x.who, x.region, signed = credential(r)
	switch {
	case f != nil:
		return x, f
	case signed == "":
		return x, &failure{code: codeMissingAuth, message: "Request is missing Authentication Token", status: http.StatusForbidden}
	case signed != x.service:
		return x, &failure{
			code: codeSignature, status: http.StatusForbidden,
			message: fmt.Sprintf("Credential should be scoped to correct service: '%s'.", x.service),
		}
	}
	return x, nil
}

func requestID(seed, n uint64) string {
	return fmt.Sprintf("%08x-%04x-4000-8000-%012x", uint32(seed), uint16(seed>>32), n) //nolint:gosec // parts of it are meant
}

// route finds the service, the operation and the protocol.
func (x *exchange) route(r *http.Request, body []byte) *failure {
	target := r.Header.Get("X-Amz-Target")
	switch {
	case strings.HasPrefix(r.URL.Path, cborPath):
		x.service, x.wire = serviceCW, cborWire{}
		x.op = strings.TrimPrefix(r.URL.Path, cborPath)
		return x.readCBOR(r, body)
	case strings.HasPrefix(target, targetSQS):
		x.service, x.op, x.wire = serviceSQS, strings.TrimPrefix(target, targetSQS), jsonWire{}
		return x.readJSON(body)
	case strings.HasPrefix(target, targetCW):
		x.service, x.op, x.wire = serviceCW, strings.TrimPrefix(target, targetCW), jsonWire{}
		return x.readJSON(body)
	}
	values := r.URL.Query()
	if r.Method == http.MethodPost {
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if kind != "application/x-www-form-urlencoded" {
			return &failure{code: codeMalformed, message: "the Content-Type is not that of a form", status: http.StatusBadRequest}
		}
		var err error
		if values, err = url.ParseQuery(string(body)); err != nil {
			return &failure{code: codeMalformed, message: "the form cannot be read", status: http.StatusBadRequest}
		}
	}
	x.op, x.p = values.Get("Action"), newParams(values)
	service, ok := versions[values.Get("Version")]
	if !ok {
		return &failure{
			code: "InvalidParameterValue", status: http.StatusBadRequest,
			message: fmt.Sprintf("The stand-in does not know the version %q of %q.", values.Get("Version"), x.op),
		}
	}
	x.service = service
	return nil
}

// credential reads whose key signed a request, for which region and service. The
// signature itself is not checked.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-authentication-methods.html
func credential(r *http.Request) (who, region, service string) {
	const scheme = "AWS4-HMAC-SHA256 "
	scope := r.URL.Query().Get("X-Amz-Credential")
	if rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), scheme); ok {
		for part := range strings.SplitSeq(rest, ",") {
			if v, ok := strings.CutPrefix(strings.TrimSpace(part), "Credential="); ok {
				scope = v
			}
		}
	}
	parts := strings.Split(scope, "/")
	if n := len(parts); n >= 5 && parts[n-1] == "aws4_request" {
		return strings.Join(parts[:n-4], "/"), parts[n-3], parts[n-2]
	}
	return "", "", ""
}

// Client is an HTTP client that calls the stand-in without a socket and without
// another goroutine, for a simulation on one clock.
func (c *Cloud) Client() *http.Client { return &http.Client{Transport: inProcess{c}} }
