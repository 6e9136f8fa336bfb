package frontproxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"
)

// Proxy is the front proxy. Run repeats what the store has missed; requests are served
// without it too.
type Proxy struct {
	opt     Options
	root    string // GitLab's relative URL root
	reverse *httputil.ReverseProxy
	seats   *seats
	ends    *ends
	words   *words
}

// New makes a proxy.
func New(o Options) (*Proxy, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Transport == nil {
		o.Transport = NewTransport(nil)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Proxy{opt: o, root: strings.TrimRight(o.GitLab.Path, "/"), seats: newSeats(), ends: newEnds(), words: newWords()}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      o.Transport,
		FlushInterval:  -1, // a trace or a clone's progress is shown as it comes
		BufferPool:     &buffers{},
		ErrorLog:       log.New(upstreamLog{p}, "", 0),
		ModifyResponse: answered,
		ErrorHandler:   p.unanswered,
	}
	return p, nil
}

// ServeHTTP passes a request on.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(r.RequestURI)+headerBytes(r.Header) > MaxHeaderBytes {
		say(w, http.StatusRequestHeaderFieldsTooLarge, "the request's headers are larger than 64 KiB")
		return
	}
	if r.Method == http.MethodConnect {
		say(w, http.StatusMethodNotAllowed, "this is no tunnel: CONNECT is not answered")
		return
	}
	// Of our own, because peek changes it: net/http looks at the body of the one it made to
	// know whether the client still sends. If it does, the connection stays open for a
	// moment after the answer; a reset would overtake it.
	r = r.WithContext(r.Context())
	w = silent100{w}
	switch what, job := classify(r.Method, r.URL.Path, p.root); {
	case what == jobRequest:
		p.jobRequest(w, r)
	case what == jobUpdate:
		p.jobUpdate(w, r, job)
	case what == jobContact:
		p.jobContact(w, r, job)
	case what == verify && p.opt.Fingerprint != nil:
		p.verify(w, r)
	case what == deleteManager:
		p.deleteManager(w, r)
	case what == discovery && p.opt.Discovery != nil:
		p.opt.Discovery.ServeHTTP(w, r)
	default:
		p.reverse.ServeHTTP(w, r)
	}
}

// silent100 leaves it to net/http to tell a client to go on, which it does as soon as the
// body is read: not before GitLab has said so. Passed on as well it could come twice.
type silent100 struct{ http.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (w silent100) WriteHeader(code int) {
	if code != http.StatusContinue {
		w.ResponseWriter.WriteHeader(code)
	}
}

// Unwrap is for [http.ResponseController].
func (w silent100) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// exchange is a request that is more than passed on.
type exchange struct {
	// plain asks GitLab not to compress the answer, because it is going to be read.
	plain bool
	// answer is called with GitLab's answer, which it may change. An error is answered
	// by unanswered.
	answer func(*http.Response) error
}

type exchangeKey struct{}

// with returns r as part of an exchange.
func with(r *http.Request, x *exchange) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

func answered(resp *http.Response) error {
	if x := exchangeOf(resp.Request.Context()); x != nil && x.answer != nil {
		return x.answer(resp)
	}
	return nil
}

// rewrite points a request to GitLab, with the path and the query as they came.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	out.URL.Scheme, out.URL.Host, out.Host = p.opt.GitLab.Scheme, p.opt.GitLab.Host, ""
	out.URL.RawQuery = in.URL.RawQuery // ReverseProxy drops what it can't parse; GitLab may be able to
	// The chain of addresses grows by the one that we saw, as every proxy does it: what
	// GitLab trusts is counted from the end.
	out.Header["X-Forwarded-For"] = in.Header["X-Forwarded-For"]
	pr.SetXForwarded()
	if p.opt.TrustForwarded {
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if v := in.Header.Get(name); v != "" {
				out.Header.Set(name, v)
			}
		}
	}
	if x := exchangeOf(in.Context()); x != nil && x.plain {
		out.Header.Set("Accept-Encoding", "identity")
	}
	passTrailers(in, out)
}

// passTrailers has the request's trailers sent on: they are known only once its body
// has been read.
func passTrailers(in, out *http.Request) {
	if len(in.Trailer) > 0 && out.Body != nil {
		out.Body = &trailing{ReadCloser: out.Body, in: in, out: out}
	}
}

// trailing is a body whose trailers are copied at its end.
type trailing struct {
	io.ReadCloser
	in, out *http.Request
}

func (t *trailing) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		for name, values := range t.in.Trailer {
			t.out.Trailer[name] = values
		}
	}
	return n, err
}

// unanswered tells the client that GitLab gave no answer. A runner tries again after
// a 502.
func (p *Proxy) unanswered(w http.ResponseWriter, r *http.Request, err error) {
	sentence := "GitLab did not answer"
	if errors.Is(err, errUnreadable) {
		sentence = "GitLab gave a job that can't be read"
	}
	if r.Context().Err() == nil && p.opt.Events.Upstream != nil {
		p.opt.Events.Upstream(err)
	}
	say(w, http.StatusBadGateway, sentence)
}

// upstreamLog is where ReverseProxy says what broke in the middle of a body.
type upstreamLog struct{ p *Proxy }

func (l upstreamLog) Write(text []byte) (int, error) {
	if f := l.p.opt.Events.Upstream; f != nil {
		f(errors.New(strings.TrimSpace(string(text))))
	}
	return len(text), nil
}

// headerBytes is about what a header takes on the wire [bytes].
func headerBytes(h http.Header) int {
	n := 0
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v) + 4
		}
	}
	return n
}

// bufferBytes is what is in memory of a body that is passed on, in each direction
// [bytes].
const bufferBytes = 32 << 10

// buffers lends the buffers that bodies are copied through.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, bufferBytes)
}

func (b *buffers) Put(buf []byte) { b.pool.Put(&buf) }

// detached outlives the client's request, but not for long: what is to be done for a
// job must not be lost because its runner hung up.
func detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}
