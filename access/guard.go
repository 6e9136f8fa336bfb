package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Refused calls are kept in the audit at this rate: a client that is wrong asks again
// and again, and what it tries is known after a few.
const (
	refusalsPerSecond = 1
	refusalsAtOnce    = 20
)

// GuardOptions are what a Guard is made from.
type GuardOptions struct {
	// Grants are the entries of the access section; nil: there is none, and every caller
	// is Open.
	Grants *Grants
	// NeedCertificate refuses callers without a client certificate, whatever else they
	// present: the listener verifies those that are given.
	NeedCertificate bool
	Rules           Rules
	// Audited are the methods whose calls are kept, with what to keep of a request.
	Audited map[string]func(request any) Entry
	Audit   Audit
	// Refused is told of each refused call; may be nil.
	Refused func(codes.Code)
}

// Guard finds out who calls and refuses what that one may not do.
type Guard struct {
	opt        GuardOptions
	grants     atomic.Pointer[Grants]
	refusals   *rate.Limiter
	suppressed atomic.Int64 // refusals that the audit was spared
}

// NewGuard makes a guard.
func NewGuard(opt GuardOptions) *Guard {
	if opt.Audit == nil {
		opt.Audit = NoAudit{}
	}
	g := &Guard{opt: opt, refusals: rate.NewLimiter(refusalsPerSecond, refusalsAtOnce)}
	g.grants.Store(opt.Grants)
	return g
}

// Replace puts other entries in force, for the calls that begin from now on. A guard
// without entries stays one: nil is ignored.
func (g *Guard) Replace(grants *Grants) {
	if grants != nil {
		g.grants.Store(grants)
	}
}

// Unary guards calls.
func (g *Guard) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := g.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	resp, err := next(ctx, req)
	if entry, audited := g.opt.Audited[info.FullMethod]; audited {
		e := entry(req)
		e.OK = err == nil
		if err != nil && e.Detail == "" {
			e.Detail = status.Convert(err).Message()
		}
		g.opt.Audit.Record(ctx, e)
	}
	return resp, err
}

// Stream guards streams. Who has opened one keeps it until it ends, which for a server's
// connections is after an hour or so.
func (g *Guard) Stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, err := g.admit(s.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return next(srv, &knownStream{s, ctx})
}

// knownStream is a stream whose caller is known.
type knownStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *knownStream) Context() context.Context { return s.ctx }

// admit returns ctx with the caller's identity if that may call the method.
func (g *Guard) admit(ctx context.Context, method string) (context.Context, error) {
	i, err := g.identify(proofOf(ctx))
	if err == nil {
		ctx = With(ctx, i)
		err = g.allowed(ctx, method)
	}
	if err != nil {
		g.refused(ctx, method, err)
		return nil, err
	}
	return ctx, nil
}

func (g *Guard) allowed(ctx context.Context, method string) error {
	roles, ok := g.opt.Rules.For(method)
	if !ok {
		return status.Errorf(codes.PermissionDenied, "no rule says who may call %s, so nobody may", method)
	}
	return RequireAny(ctx, roles...)
}

// HTTP finds out who sends a request, and refuses those without the role. Its errors are
// as those of calls: HTTPStatus has their codes.
func (g *Guard) HTTP(r *http.Request, role Role) (context.Context, error) {
	p := proof{tokens: r.Header.Values("Authorization"), from: r.RemoteAddr}
	if r.TLS != nil {
		p.certificate = verified(r.TLS)
	}
	ctx := r.Context()
	i, err := g.identify(p)
	if err == nil {
		ctx = With(ctx, i)
		err = Require(ctx, role)
	}
	if err != nil {
		g.refused(peer.NewContext(ctx, &peer.Peer{Addr: textAddr(r.RemoteAddr)}), r.Method+" "+r.URL.Path, err)
		return nil, err
	}
	return ctx, nil
}

// HTTPStatus is the status of an HTTP answer for an error of this package.
func HTTPStatus(err error) int {
	if status.Code(err) == codes.Unauthenticated {
		return http.StatusUnauthorized
	}
	return http.StatusForbidden
}

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

// proof is what a caller presents.
type proof struct {
	tokens      []string          // values of authorization
	certificate *x509.Certificate // verified; nil: none
	from        string            // address
}

func proofOf(ctx context.Context) proof {
	p := proof{tokens: metadata.ValueFromIncomingContext(ctx, "authorization")}
	if at, ok := peer.FromContext(ctx); ok {
		if info, ok := at.AuthInfo.(credentials.TLSInfo); ok {
			p.certificate = verified(&info.State)
		}
	}
	return p
}

// verified is the caller's certificate, if the handshake has verified it.
func verified(s *tls.ConnectionState) *x509.Certificate {
	if len(s.VerifiedChains) == 0 || len(s.VerifiedChains[0]) == 0 {
		return nil
	}
	return s.VerifiedChains[0][0]
}

// identify finds the entry. A token that is presented decides: one that nobody has is
// refused even if the certificate would do, since whoever sends it means to be that one.
func (g *Guard) identify(p proof) (Identity, error) {
	grants := g.grants.Load()
	switch {
	case g.opt.NeedCertificate && p.certificate == nil:
		return Identity{}, errNoCertificate
	case grants == nil:
		return Open(), nil
	case len(p.tokens) > 0:
		scheme, token, _ := strings.Cut(p.tokens[0], " ")
		if i, ok := grants.byToken(strings.TrimSpace(token)); ok && len(p.tokens) == 1 && strings.EqualFold(scheme, "bearer") {
			return i, nil
		}
		return Identity{}, status.Error(codes.Unauthenticated, "nobody in the control plane's access section has this token: send it as authorization: Bearer TOKEN, as the file or variable named there has it")
	case p.certificate != nil:
		if i, ok := grants.byCertificate(p.certificate); ok {
			return i, nil
		}
		return Identity{}, status.Errorf(codes.Unauthenticated, "nobody in the control plane's access section has this certificate (%.200s): add an entry for one of its names, or present a token", strings.Join(Subjects(p.certificate), ", "))
	default:
		return Identity{}, status.Error(codes.Unauthenticated, "no token and no client certificate: present what an entry of the control plane's access section names")
	}
}

var errNoCertificate = status.Error(codes.Unauthenticated, "no client certificate: this control plane (listen.tls.ca_file) takes calls only from holders of one")

// refused keeps some of the refusals and counts all.
func (g *Guard) refused(ctx context.Context, what string, err error) {
	if g.opt.Refused != nil {
		g.opt.Refused(status.Code(err))
	}
	if !g.refusals.AllowN(time.Now(), 1) {
		g.suppressed.Add(1)
		return
	}
	e := Entry{Action: "refused", Object: what, Detail: status.Convert(err).Message()}
	if at, ok := peer.FromContext(ctx); ok && at.Addr != nil {
		e.Detail = "from " + at.Addr.String() + ": " + e.Detail
	}
	if n := g.suppressed.Swap(0); n > 0 {
		e.Detail = fmt.Sprintf("(after %d more that are not listed) %s", n, e.Detail)
	}
	g.opt.Audit.Record(ctx, e)
}

// NeedCertificate refuses callers without a client certificate in a sentence, for a
// listener that has no other rule. It is two interceptors.
func NeedCertificate() (grpc.UnaryServerInterceptor, grpc.StreamServerInterceptor) {
	check := func(ctx context.Context) error {
		if proofOf(ctx).certificate == nil {
			return errNoCertificate
		}
		return nil
	}
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := check(ctx); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}, func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := check(s.Context()); err != nil {
				return err
			}
			return next(srv, s)
		}
}
