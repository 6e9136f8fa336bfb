package access_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/internal/tlsfiles/tlstest"
)

const (
	listPools = "/spillway.admin.v1.AdminService/ListPools"
	push      = "/spillway.jobs.v1.JobService/Push"
	cancel    = "/spillway.jobs.v1.JobService/Cancel"
	exec      = "/spillway.debug.v1.DebugService/Exec"
)

const (
	ciToken    = "token-of-ci-0123456789"
	adminToken = "token-of-admin-0123456789"
)

func hash(t *testing.T, token string) access.Hash {
	t.Helper()
	h, err := access.HashOf(token)
	require.NoError(t, err)
	return h
}

// kept is an audit that remembers.
type kept struct {
	mu      sync.Mutex
	entries []access.Entry
	callers []access.Identity
}

func (k *kept) Record(ctx context.Context, e access.Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i, _ := access.From(ctx)
	k.entries, k.callers = append(k.entries, e), append(k.callers, i)
}

func newGrants(t *testing.T) *access.Grants {
	t.Helper()
	g, err := access.NewGrants([]access.Grant{
		{Name: "ci", Token: hash(t, ciToken), Roles: []access.Role{access.Push}},
		{Name: "admin", Token: hash(t, adminToken), Certificate: "CN=admin", Roles: []access.Role{access.Read, access.Debug}},
		{Name: "workers", Certificate: "DNS:*.workers.example", Roles: []access.Role{access.Coordinate}},
		{Name: "worker-0", Certificate: "DNS:w0.workers.example", Roles: []access.Role{access.Push}},
		{Name: "cell", Certificate: "URI:spiffe://example/cell/*", Roles: []access.Role{access.Cell}},
	})
	require.NoError(t, err)
	return g
}

// call is a call to a guard, as grpc makes it.
type call struct {
	token string // value of authorization
	cert  *x509.Certificate
}

func (c call) context() context.Context {
	p := &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 99}}
	if c.cert != nil {
		p.AuthInfo = credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c.cert}}}}
	}
	ctx := peer.NewContext(context.Background(), p)
	if c.token != "" {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", c.token))
	}
	return ctx
}

// try returns who called, once as a call and once as a stream: both must agree.
func try(on context.Context, t *testing.T, g *access.Guard, method string) (access.Identity, error) {
	t.Helper()
	var unary, stream access.Identity
	_, err := g.Unary(on, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
		unary, _ = access.From(ctx)
		return nil, nil
	})
	err2 := g.Stream(nil, openStream{ctx: on}, &grpc.StreamServerInfo{FullMethod: method}, func(_ any, s grpc.ServerStream) error {
		stream, _ = access.From(s.Context())
		return nil
	})
	require.Equal(t, err, err2)
	require.Equal(t, unary, stream)
	return unary, err
}

type openStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s openStream) Context() context.Context { return s.ctx }

func certificate(t *testing.T, r tlstest.Request) *x509.Certificate {
	t.Helper()
	p := tlstest.New(t, "authority").Issue(t, r)
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	require.NoError(t, err)
	return pair.Leaf
}

func TestWhoMayCallWhat(t *testing.T) {
	admin := certificate(t, tlstest.Request{Name: "admin"})
	for _, c := range []struct {
		name   string
		call   call
		method string
		who    string // empty: refused
		code   codes.Code
		says   string
	}{
		{"a token", call{token: "Bearer " + ciToken}, push, "ci", codes.OK, ""},
		{"scheme in lower case", call{token: "bearer " + ciToken}, push, "ci", codes.OK, ""},
		{"push includes looking at jobs", call{token: "Bearer " + ciToken}, "/spillway.jobs.v1.JobService/Get", "ci", codes.OK, ""},
		{"another role", call{token: "Bearer " + ciToken}, listPools, "", codes.PermissionDenied, `"ci" (by token) does not have the role "read"`},
		{"debug", call{token: "Bearer " + adminToken}, exec, "admin", codes.OK, ""},
		{"an unknown token", call{token: "Bearer token-of-nobody-0123456789"}, push, "", codes.Unauthenticated, "nobody in the control plane's access section has this token"},
		{"no scheme", call{token: ciToken}, push, "", codes.Unauthenticated, "send it as authorization: Bearer TOKEN"},
		{"the empty token", call{token: "Bearer "}, push, "", codes.Unauthenticated, "has this token"},
		{"nothing", call{}, push, "", codes.Unauthenticated, "no token and no client certificate"},
		{"a common name", call{cert: admin}, listPools, "admin", codes.OK, ""},
		{"a wrong token beside a good certificate", call{token: "Bearer wrong-token-0123456789", cert: admin}, listPools, "", codes.Unauthenticated, "has this token"},
		{"a token beside a certificate decides", call{token: "Bearer " + ciToken, cert: admin}, push, "ci", codes.OK, ""},
		{"a DNS name by pattern", call{cert: certificate(t, tlstest.Request{Name: "admin", DNS: "w7.workers.example"})}, "/coordinator.PoolCoordinator/PollJob", "workers", codes.OK, ""},
		{"the name itself wins over a pattern", call{cert: certificate(t, tlstest.Request{DNS: "w0.workers.example"})}, push, "worker-0", codes.OK, ""},
		{"a pattern is for one label", call{cert: certificate(t, tlstest.Request{DNS: "a.b.workers.example"})}, push, "", codes.Unauthenticated, "DNS:a.b.workers.example"},
		{"a URI by pattern", call{cert: certificate(t, tlstest.Request{URI: "spiffe://example/cell/eu"})}, "/spillway.cells.v1.CellService/Link", "cell", codes.OK, ""},
		{"a pattern is for one segment", call{cert: certificate(t, tlstest.Request{URI: "spiffe://example/cell/eu/x"})}, push, "", codes.Unauthenticated, "has this certificate"},
		{"an unknown certificate", call{cert: certificate(t, tlstest.Request{Name: "stranger"})}, push, "", codes.Unauthenticated, "has this certificate (CN=stranger)"},
		{"a DNS name is no common name", call{cert: certificate(t, tlstest.Request{DNS: "admin"})}, listPools, "", codes.Unauthenticated, "(DNS:admin)"},
		{"a method without a rule", call{token: "Bearer " + adminToken}, "/spillway.admin.v1.AdminService/Format", "", codes.PermissionDenied, "no rule says who may call"},
		{"a service without a rule", call{token: "Bearer " + adminToken}, "/other.Service/Do", "", codes.PermissionDenied, "no rule says who may call"},
	} {
		g := access.NewGuard(access.GuardOptions{Grants: newGrants(t), Rules: access.DefaultRules()})
		who, err := try(c.call.context(), t, g, c.method)
		require.Equal(t, c.code, status.Code(err), "%s: %v", c.name, err)
		require.Equal(t, c.who, who.Name, c.name)
		if err != nil {
			require.Contains(t, status.Convert(err).Message(), c.says, c.name)
			require.NotContains(t, err.Error(), "0123456789", "%s: no token in an error", c.name)
		}
	}
}

func TestIdentitySaysHowItWasProven(t *testing.T) {
	g := access.NewGuard(access.GuardOptions{Grants: newGrants(t), Rules: access.DefaultRules()})
	who, err := try(call{cert: certificate(t, tlstest.Request{DNS: "w7.workers.example"})}.context(), t, g, "/coordinator.PoolCoordinator/PollJob")
	require.NoError(t, err)
	require.Equal(t, access.Identity{Name: "workers", Via: access.ViaCertificate, Subject: "DNS:w7.workers.example", Roles: []access.Role{access.Coordinate}}, who)
}

// Without a section everything is open to whoever can connect, except for debugging.
func TestWithoutSection(t *testing.T) {
	g := access.NewGuard(access.GuardOptions{Rules: access.DefaultRules()})
	for method, roles := range access.DefaultRules() {
		who, err := try(call{token: "Bearer whatever"}.context(), t, g, method)
		if len(roles) == 1 && roles[0] == access.Debug {
			require.Equal(t, codes.PermissionDenied, status.Code(err), method)
			require.ErrorContains(t, err, "which only an access section in the control plane's configuration gives")
			continue
		}
		require.NoError(t, err, method)
		require.Equal(t, access.ViaOpen, who.Via)
	}
}

func TestCertificateMayBeNeededByAll(t *testing.T) {
	g := access.NewGuard(access.GuardOptions{NeedCertificate: true, Rules: access.DefaultRules()})
	_, err := try(call{}.context(), t, g, push)
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.ErrorContains(t, err, "no client certificate: this control plane (listen.tls.ca_file) takes calls only from holders of one")
	_, err = try(call{cert: certificate(t, tlstest.Request{Name: "x"})}.context(), t, g, push)
	require.NoError(t, err)

	g = access.NewGuard(access.GuardOptions{NeedCertificate: true, Grants: newGrants(t), Rules: access.DefaultRules()})
	_, err = try(call{token: "Bearer " + ciToken}.context(), t, g, push)
	require.ErrorContains(t, err, "no client certificate", "a token alone is not enough there")
}

// What was not verified in the handshake proves nothing.
func TestUnverifiedCertificateIsNone(t *testing.T) {
	g := access.NewGuard(access.GuardOptions{Grants: newGrants(t), Rules: access.DefaultRules()})
	ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{certificate(t, tlstest.Request{Name: "admin"})},
	}}})
	_, err := try(ctx, t, g, listPools)
	require.ErrorContains(t, err, "no token and no client certificate")
}

func TestTwoTokensAreNone(t *testing.T) {
	g := access.NewGuard(access.GuardOptions{Grants: newGrants(t), Rules: access.DefaultRules()})
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+ciToken, "authorization", "Bearer "+adminToken))
	_, err := try(ctx, t, g, push)
	require.Equal(t, codes.Unauthenticated, status.Code(err))
}

func TestReplacedGrantsAreInForceAtOnce(t *testing.T) {
	g := access.NewGuard(access.GuardOptions{Grants: newGrants(t), Rules: access.DefaultRules()})
	next, err := access.NewGrants([]access.Grant{{Name: "ci", Token: hash(t, "another-token-0123456789"), Roles: []access.Role{access.Push}}})
	require.NoError(t, err)
	g.Replace(next)
	_, err = try(call{token: "Bearer " + ciToken}.context(), t, g, push)
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	_, err = try(call{token: "Bearer another-token-0123456789"}.context(), t, g, push)
	require.NoError(t, err)
	g.Replace(nil)
	_, err = try(call{}.context(), t, g, push)
	require.Equal(t, codes.Unauthenticated, status.Code(err), "a guard does not open by itself")
}

func TestGrantsMustDiffer(t *testing.T) {
	_, err := access.NewGrants([]access.Grant{{Name: "a", Token: hash(t, ciToken)}, {Name: "b", Token: hash(t, ciToken)}})
	require.ErrorContains(t, err, "b has the same token as a")
	_, err = access.NewGrants([]access.Grant{{Name: "a", Certificate: "CN=x"}, {Name: "b", Certificate: "CN=x"}})
	require.ErrorContains(t, err, "b has the same certificate as a")
	_, err = access.HashOf(strings.Repeat("x", access.MinTokenBytes-1))
	require.ErrorIs(t, err, access.ErrShortToken)
	_, err = access.HashOf(strings.Repeat("x", access.MinTokenBytes))
	require.NoError(t, err)
}

// No token but an entry's own is let in, whatever it is.
func TestNoOtherTokenIsLetIn(t *testing.T) {
	g := access.NewGuard(access.GuardOptions{Grants: newGrants(t), Rules: access.DefaultRules()})
	rapid.Check(t, func(r *rapid.T) {
		token := rapid.OneOf(rapid.StringMatching(`[ -~]{0,64}`), rapid.SampledFrom([]string{ciToken[1:], ciToken + "x", strings.ToUpper(ciToken), "Bearer " + ciToken})).Draw(r, "token")
		_, err := try(call{token: "Bearer " + token}.context(), t, g, push)
		if strings.TrimSpace(token) == ciToken || strings.TrimSpace(token) == adminToken {
			return
		}
		if status.Code(err) != codes.Unauthenticated {
			r.Fatalf("%q was let in: %v", token, err)
		}
	})
}

func TestSubjectsOfConfigurations(t *testing.T) {
	for _, good := range []string{"DNS:a.example", "DNS:*.a.example", "URI:spiffe://a/b", "URI:spiffe://a/b/*", "CN=on-call"} {
		require.NoError(t, access.CheckSubject(good), good)
	}
	for _, bad := range []string{
		"", "a.example", "DNS:", "URI:", "CN=", "dns:a", "DNS:A.example", "DNS:*", "DNS:*.example", "DNS:a.*.example", "DNS:*.*.a.example",
		"URI:*", "URI:spiffe://*", "URI:spiffe://a/*/b", "CN=*", "CN=a*",
	} {
		require.Error(t, access.CheckSubject(bad), bad)
	}
}

func TestRequire(t *testing.T) {
	err := access.Require(t.Context(), access.Debug)
	require.Equal(t, codes.Unauthenticated, status.Code(err), "nobody is nobody")
	ctx := access.With(t.Context(), access.Identity{Name: "ci", Via: access.ViaToken, Roles: []access.Role{access.Push}})
	require.NoError(t, access.Require(ctx, access.Push))
	require.Equal(t, codes.PermissionDenied, status.Code(access.Require(ctx, access.Debug)))
	require.NoError(t, access.RequireAny(ctx, access.Read, access.Push))
	require.Error(t, access.RequireAny(ctx))
}

func TestHTTPRequestsAreGuardedAlike(t *testing.T) {
	audit := &kept{}
	g := access.NewGuard(access.GuardOptions{Grants: newGrants(t), Rules: access.DefaultRules(), Audit: audit})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/jobs/1/proxy/80/", nil)
	_, err := g.HTTP(r, access.Debug)
	require.Equal(t, http.StatusUnauthorized, access.HTTPStatus(err))
	r.Header.Set("Authorization", "Bearer "+ciToken)
	_, err = g.HTTP(r, access.Debug)
	require.Equal(t, http.StatusForbidden, access.HTTPStatus(err))
	r.Header.Set("Authorization", "Bearer "+adminToken)
	ctx, err := g.HTTP(r, access.Debug)
	require.NoError(t, err)
	who, _ := access.From(ctx)
	require.Equal(t, "admin", who.Name)
	r.Header.Del("Authorization")
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{certificate(t, tlstest.Request{Name: "admin"})}}}
	_, err = g.HTTP(r, access.Debug)
	require.NoError(t, err)

	require.Len(t, audit.entries, 2)
	require.Equal(t, "GET /jobs/1/proxy/80/", audit.entries[1].Object)
	require.Contains(t, audit.entries[1].Detail, "from 192.0.2.1:1234: ")
	require.Equal(t, "ci", audit.callers[1].Name)
}

func TestRefusalsAreKeptAtARate(t *testing.T) {
	audit, refused := &kept{}, 0
	g := access.NewGuard(access.GuardOptions{
		Grants: newGrants(t), Rules: access.DefaultRules(), Audit: audit,
		Refused: func(codes.Code) { refused++ },
	})
	const calls = 500
	for range calls {
		_, _ = g.Unary(call{token: "Bearer wrong-token-0123456789"}.context(), nil, &grpc.UnaryServerInfo{FullMethod: push}, nil)
	}
	require.Equal(t, calls, refused)
	require.Less(t, len(audit.entries), 100)
	require.NotEmpty(t, audit.entries)
	e := audit.entries[0]
	require.Equal(t, "refused", e.Action)
	require.Equal(t, push, e.Object)
	require.False(t, e.OK)
	require.Contains(t, e.Detail, "from 192.0.2.7:99: nobody in the control plane's access section has this token")
	require.NotContains(t, e.Detail, "wrong-token")
	require.Eventually(t, func() bool {
		_, _ = g.Unary(call{}.context(), nil, &grpc.UnaryServerInfo{FullMethod: push}, nil)
		audit.mu.Lock()
		defer audit.mu.Unlock()
		return strings.Contains(audit.entries[len(audit.entries)-1].Detail, "more that are not listed")
	}, 80*time.Second, 100*time.Millisecond)
}

func TestAuditedCallsAreKeptWithTheirOutcome(t *testing.T) {
	audit := &kept{}
	g := access.NewGuard(access.GuardOptions{
		Grants: newGrants(t), Rules: access.DefaultRules(), Audit: audit,
		Audited: map[string]func(any) access.Entry{cancel: func(r any) access.Entry { return access.Entry{Action: "job.cancel", Object: r.(string)} }},
	})
	do := func(method string, answer error) {
		_, err := g.Unary(call{token: "Bearer " + ciToken}.context(), "job-1", &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, answer })
		require.Equal(t, answer, err)
	}
	do(cancel, nil)
	do(cancel, status.Error(codes.NotFound, "no such job"))
	do("/spillway.jobs.v1.JobService/Get", nil)
	require.Equal(t, []access.Entry{
		{Action: "job.cancel", Object: "job-1", OK: true},
		{Action: "job.cancel", Object: "job-1", Detail: "no such job"},
	}, audit.entries)
	require.Equal(t, "ci", audit.callers[0].Name)
}

func TestListenersWithoutOtherRules(t *testing.T) {
	unary, stream := access.NeedCertificate()
	for _, c := range []struct {
		call call
		code codes.Code
	}{{call{}, codes.Unauthenticated}, {call{cert: certificate(t, tlstest.Request{})}, codes.OK}} {
		_, err := unary(c.call.context(), nil, nil, func(context.Context, any) (any, error) { return nil, nil })
		require.Equal(t, c.code, status.Code(err))
		err = stream(nil, openStream{ctx: c.call.context()}, nil, func(any, grpc.ServerStream) error { return nil })
		require.Equal(t, c.code, status.Code(err))
	}
}

func TestServicesNeedRules(t *testing.T) {
	services := map[string]grpc.ServiceInfo{
		"spillway.jobs.v1.JobService":    {Methods: []grpc.MethodInfo{{Name: "Push"}, {Name: "Format"}}},
		"spillway.debug.v1.DebugService": {Methods: []grpc.MethodInfo{{Name: "Anything"}}},
		"other.Service":                  {Methods: []grpc.MethodInfo{{Name: "Do"}}},
	}
	require.EqualError(t, access.DefaultRules().Complete(services),
		"no rule says who may call /other.Service/Do: add one to access.DefaultRules\nno rule says who may call /spillway.jobs.v1.JobService/Format: add one to access.DefaultRules")
	delete(services, "other.Service")
	services["spillway.jobs.v1.JobService"] = grpc.ServiceInfo{Methods: []grpc.MethodInfo{{Name: "Push"}}}
	require.NoError(t, access.DefaultRules().Complete(services))
}
