package jobrouter

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
	jobrouterpb "github.com/spillway-ci/spillway/proto/gitlab/jobrouter"
	runnerrpcpb "github.com/spillway-ci/spillway/proto/gitlab/runnerrpc"
)

const (
	soon  = time.Minute // far more than anything here takes, also where much else runs
	often = 5 * time.Millisecond
)

// certificate is one for 127.0.0.1, and the pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "router"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// served is a stand that runners reach in every way.
type served struct {
	*stand
	dial   []grpc.DialOption // nil: over the network
	pool   *x509.CertPool
	urls   map[string]string // by scheme
	server *grpc.Server      // of grpc, ws and wss
}

func serve(t *testing.T, sets ...set) *served {
	t.Helper()
	sets = append([]set{func(o *Options, _ *stand) { o.PollEvery = 20 * time.Millisecond }}, sets...)
	s := &served{stand: newStand(t, sets...), urls: map[string]string{}}
	cert, pool := certificate(t)
	s.pool = pool
	secured := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	service := NewService(s.desk)

	start := func(options []grpc.ServerOption, listeners ...net.Listener) *grpc.Server {
		g := grpc.NewServer(options...)
		service.Register(g)
		for _, lis := range listeners {
			go func() { _ = g.Serve(lis) }() // it ends with Stop
		}
		t.Cleanup(g.Stop)
		return g
	}
	plain, tunnel := loopback(t), NewTunnel(s.desk.opt.Tokens)
	t.Cleanup(func() { _ = tunnel.Close() })
	s.server = start(ServerOptions(nil), plain, tunnel)
	s.urls["grpc"] = "grpc://" + plain.Addr().String()

	secure, secureTunnel := loopback(t), NewTunnel(s.desk.opt.Tokens)
	t.Cleanup(func() { _ = secureTunnel.Close() })
	start(ServerOptions(secured), secure, secureTunnel)
	s.urls["grpcs"] = "grpcs://" + secure.Addr().String()

	ws := httptest.NewServer(tunnel)
	t.Cleanup(ws.Close)
	s.urls["ws"] = strings.Replace(ws.URL, "http", "ws", 1) + "/tunnel"
	wss := httptest.NewUnstartedServer(secureTunnel)
	wss.TLS = secured.Clone()
	wss.StartTLS()
	t.Cleanup(wss.Close)
	s.urls["wss"] = strings.Replace(wss.URL, "https", "wss", 1) + "/tunnel"
	return s
}

func loopback(t *testing.T) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return lis
}

// bearerOf is what a runner sends with each call.
type bearerOf string

func (b bearerOf) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b), "gitlab-agent-type": "runner"}, nil
}

func (bearerOf) RequireTransportSecurity() bool { return false }

// connect dials as GitLab Runner does.
func (s *served) connect(scheme, token string) *grpc.ClientConn {
	s.t.Helper()
	url := s.urls[scheme]
	trust := &tls.Config{RootCAs: s.pool, MinVersion: tls.VersionTLS12}
	options := []grpc.DialOption{grpc.WithPerRPCCredentials(bearerOf(token)), grpc.WithTransportCredentials(insecure.NewCredentials())}
	var target string
	switch {
	case s.dial != nil:
		target = "passthrough:" + strings.TrimPrefix(url, "grpc://")
		options = append(options, s.dial...)
	case scheme == "grpc":
		target = "dns:" + strings.TrimPrefix(url, "grpc://")
	case scheme == "grpcs":
		target = "dns:" + strings.TrimPrefix(url, "grpcs://")
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(trust)))
	default:
		target = "passthrough:" + url
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			ws, _, err := dialTunnel(ctx, address, token, &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}, "ws-tunnel")
			if err != nil {
				return nil, err
			}
			return websocket.NetConn(context.Background(), ws, websocket.MessageBinary), nil
		}))
	}
	conn, err := grpc.NewClient(target, options...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func dialTunnel(ctx context.Context, url, token string, client *http.Client, protocols ...string) (*websocket.Conn, int, error) {
	ws, response, err := websocket.Dial(ctx, url, &websocket.DialOptions{ //nolint:bodyclose // the library has closed it
		HTTPClient: client, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: protocols,
	})
	if response == nil {
		return nil, 0, err
	}
	return ws, response.StatusCode, err
}

// reply is the end of a runner's call.
type reply struct {
	body   []byte
	header metadata.MD
	err    error
}

func getJob(ctx context.Context, conn *grpc.ClientConn, body []byte) reply {
	var r reply
	m, err := jobrouterpb.NewJobRouterClient(conn).GetJob(
		metadata.AppendToOutgoingContext(ctx, "x-request-id", "0123456789abcdef0123456789abcdef"),
		&jobrouterpb.GetJobRequest{JobRequest: body}, grpc.Header(&r.header))
	r.body, r.err = m.GetJobResponse(), err
	return r
}

func (s *served) getJobSoon(conn *grpc.ClientConn, system string) <-chan reply {
	done := make(chan reply, 1)
	go func() { done <- getJob(s.t.Context(), conn, requestBody(system, "first", runnerFeatures())) }()
	return done
}

func (s *served) waitUntil(system string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.contacts.waiting(spillway.MachineID(system)) > 0 }, soon, often)
}

func (s *served) reply(c <-chan reply) reply {
	s.t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(soon):
		require.FailNow(s.t, "the call was not answered")
		return reply{}
	}
}

func TestARunnerGetsItsJobOverEveryScheme(t *testing.T) {
	s := serve(t)
	for i, scheme := range []string{"grpc", "grpcs", "ws", "wss"} {
		t.Run(scheme, func(t *testing.T) {
			system, id := "m-"+scheme, int64(100+i)
			c := s.getJobSoon(s.connect(scheme, testToken), system)
			s.waitUntil(system)
			s.gitlab.enqueue(id)
			r := s.reply(c)
			require.NoError(t, r.err)
			require.Equal(t, string(jobBody(id)), string(r.body))
			require.Equal(t, []string{"correlation-" + string(jobID(id))}, r.header.Get("x-request-id"))
			require.Eventually(t, func() bool { return s.log.has("given " + string(jobID(id)) + " to " + system) }, soon, often)
			require.Eventually(t, func() bool { return s.contacts.waiting(spillway.MachineID(system)) == 0 }, soon, often)
		})
	}
}

func TestTheOldNameOfTheServiceWorksToo(t *testing.T) {
	s := serve(t)
	s.gitlab.enqueue(5)
	m, err := runnerrpcpb.NewJobRouterClient(s.connect("grpc", testToken)).GetJob(t.Context(), &runnerrpcpb.GetJobRequest{JobRequest: requestBody("m1", "", runnerFeatures())})
	require.NoError(t, err)
	require.Equal(t, string(jobBody(5)), string(m.GetJobResponse()))
}

func TestALargeJobGoesThrough(t *testing.T) {
	for _, scheme := range []string{"grpc", "wss"} {
		t.Run(scheme, func(t *testing.T) {
			s := serve(t)
			body := append(jobBody(1)[:len(jobBody(1))-1], []byte(`,"script":"`+strings.Repeat("x", 3<<20)+`"}`)...)
			s.gitlab.answerWith(answerOnce(body))
			r := getJob(t.Context(), s.connect(scheme, testToken), requestBody("m1", "", runnerFeatures()))
			require.NoError(t, r.err)
			require.Equal(t, len(body), len(r.body))
		})
	}
}

// until asks until an answer is as wanted: where much else runs, a short long poll may be
// over before GitLab was asked.
func until(t *testing.T, conn *grpc.ClientConn, wanted func(reply) bool) (r reply) {
	t.Helper()
	require.Eventually(t, func() bool {
		r = getJob(t.Context(), conn, requestBody("m1", "", runnerFeatures()))
		return r.err != nil || wanted(r)
	}, soon, often)
	require.NoError(t, r.err)
	return r
}

func TestNoJobIsOKAndEmpty(t *testing.T) {
	s := serve(t, func(o *Options, _ *stand) { o.LongPoll = time.Second })
	r := until(t, s.connect("grpc", testToken), func(r reply) bool { return len(r.header.Get("x-gitlab-last-update")) > 0 })
	require.Empty(t, r.body)
	require.Equal(t, []string{"v0"}, r.header.Get("x-gitlab-last-update"))
	require.Equal(t, []string{"0123456789abcdef0123456789abcdef"}, r.header.Get("x-request-id"))
}

// gRPC passes on printable ASCII only. What else GitLab, or what stands in front of it,
// writes into a header must neither cost the job nor tell the runner that we are ill.
func TestAHeaderThatCannotBePassedOnIsLeftOut(t *testing.T) {
	for name, header := range map[string]string{"not ASCII": "caf\xe9", "too long": strings.Repeat("x", maxMetaBytes+1)} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(o *Options, _ *stand) { o.LongPoll = time.Second })
			conn := s.connect("grpc", testToken)
			s.gitlab.answerWith(func(asked) (gitlab.JobAnswer, error) {
				return gitlab.JobAnswer{Status: http.StatusNoContent, LastUpdate: header}, nil
			})
			r := until(t, conn, func(reply) bool { return len(s.gitlab.questions()) > 0 })
			require.Empty(t, r.header.Get("x-gitlab-last-update"))
			once := answerOnce(jobBody(1))
			s.gitlab.answerWith(func(q asked) (gitlab.JobAnswer, error) {
				a, err := once(q)
				a.RequestID = header
				return a, err
			})
			r = until(t, conn, func(r reply) bool { return len(r.body) > 0 })
			require.Equal(t, string(jobBody(1)), string(r.body))
			require.Empty(t, r.header.Get("x-request-id"))
		})
	}
}

// What a runner is told must never be one of the codes that put it out of service.
func TestWhoIsSentToGitLab(t *testing.T) {
	s := serve(t)
	good := requestBody("m1", "", runnerFeatures())
	for name, ask := range map[string]struct {
		token string
		body  []byte
	}{
		"another token": {"glrt-unknown", good},
		"no token":      {"", good},
		"no JSON":       {testToken, []byte("{")},
		"empty":         {testToken, nil},
		"no system_id":  {testToken, requestBody("", "", runnerFeatures())},
		"too large":     {testToken, requestBody("m1"+strings.Repeat("x", route.MaxRequestBytes), "", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			r := getJob(t.Context(), s.connect("grpc", ask.token), ask.body)
			require.Equal(t, codes.Unimplemented, status.Code(r.err), "%v", r.err)
			require.NotContains(t, r.err.Error(), "glrt-")
		})
	}
	require.True(t, s.log.has("refused: ask GitLab"))
}

func TestATokenInAnotherFormIsNone(t *testing.T) {
	for header, want := range map[string]string{"Bearer x": "x", "bearer x": "", "x": "", "": "", "Basic x": ""} {
		require.Equal(t, want, bearerToken(header))
	}
}

func TestAMachineThatMayNotBeGivenJobsIsToldThatThereAreNone(t *testing.T) {
	s := serve(t)
	s.contacts.refuse(route.ErrSharedSystem)
	s.gitlab.enqueue(1)
	r := getJob(t.Context(), s.connect("grpc", testToken), requestBody("m1", "", runnerFeatures()))
	require.NoError(t, r.err)
	require.Empty(t, r.body)
	require.Empty(t, s.gitlab.questions())
}

// That another machine has its name may be found out, from another replica's contacts,
// while it waits.
func TestAMachineThatMayNotBeGivenJobsAnyMoreGetsNone(t *testing.T) {
	s := serve(t)
	c := s.getJobSoon(s.connect("grpc", testToken), "m1")
	s.waitUntil("m1")
	s.contacts.refuse(route.ErrSharedSystem)
	s.gitlab.enqueue(1)
	r := s.reply(c)
	require.NoError(t, r.err)
	require.Empty(t, r.body)
	require.True(t, s.log.has("refused: no job: two instances use the same system_id"))
	require.Eventually(t, func() bool { return len(s.desk.Held()) == 1 }, soon, often)
	_, booked := s.book.has(1)
	require.False(t, booked)
	s.contacts.refuse(nil)
	r = getJob(t.Context(), s.connect("grpc", testToken), requestBody("m2", "", runnerFeatures()))
	require.NoError(t, r.err)
	require.Equal(t, string(jobBody(1)), string(r.body))
}

func TestTooManyOpenQuestions(t *testing.T) {
	s := serve(t, func(o *Options, _ *stand) { o.MaxWaiting = 1 })
	conn := s.connect("grpc", testToken)
	s.getJobSoon(conn, "m1")
	s.waitUntil("m1")
	r := getJob(t.Context(), conn, requestBody("m2", "", runnerFeatures()))
	require.NoError(t, r.err)
	require.Empty(t, r.body)
	require.True(t, s.log.has("refused: no job: too many questions"))
}

func TestAPanicInTheServiceIsAnEmptyAnswer(t *testing.T) {
	s := serve(t)
	s.desk.opt.Contacts = panicking{}
	r := getJob(t.Context(), s.connect("grpc", testToken), requestBody("m1", "", runnerFeatures()))
	require.NoError(t, r.err)
	require.Empty(t, r.body)
	require.True(t, s.log.has("panicked"))
	require.Zero(t, s.desk.waiting.Load())
}

type panicking struct{}

func (panicking) Admit(route.Caller, time.Time) error { panic("contacts") }

func (panicking) Waiting(route.Caller) func() { return func() {} }

func TestARunnerThatStopsWhileItsJobComesLosesNothing(t *testing.T) {
	s := serve(t)
	hold := make(chan struct{})
	s.gitlab.holdUntil(hold)
	s.gitlab.enqueue(1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan reply, 1)
	go func() {
		done <- getJob(ctx, s.connect("grpc", testToken), requestBody("m1", "", runnerFeatures()))
	}()
	s.waitUntil("m1")
	require.Eventually(t, func() bool { return len(s.gitlab.questions()) == 1 }, soon, often)
	cancel()
	require.Equal(t, codes.Canceled, status.Code((<-done).err))
	require.Eventually(t, func() bool { return s.contacts.waiting("m1") == 0 }, soon, often)
	c := s.getJobSoon(s.connect("grpc", testToken), "m2")
	s.waitUntil("m2")
	close(hold)
	require.Equal(t, string(jobBody(1)), string(s.reply(c).body))
}

func TestDrainAndAnAbruptEndOverTheWire(t *testing.T) {
	s := serve(t)
	conn := s.connect("grpc", testToken)
	c := s.getJobSoon(conn, "m1")
	s.waitUntil("m1")
	require.NoError(t, s.desk.Drain(t.Context()))
	require.Equal(t, codes.Unimplemented, status.Code(s.reply(c).err))
	require.Equal(t, codes.Unimplemented, status.Code(getJob(t.Context(), conn, requestBody("m2", "", runnerFeatures())).err))

	s = serve(t)
	c = s.getJobSoon(s.connect("grpc", testToken), "m1")
	s.waitUntil("m1")
	s.stop()
	require.Equal(t, codes.Unavailable, status.Code(s.reply(c).err))
}
