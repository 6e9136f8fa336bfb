package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/peertest"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
	"github.com/spillway-ci/spillway/server"
)

func register(a adminv1.AdminServiceServer) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) { adminv1.RegisterAdminServiceServer(r, a) }
}

func client(t *testing.T, addr net.Addr, creds credentials.TransportCredentials) adminv1.AdminServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr.String(), grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return adminv1.NewAdminServiceClient(conn)
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestServeAndStop(t *testing.T) {
	m := server.NewMetrics("v9")
	m.AddPool(testPool("linux"))
	ready := errors.New("redis://u:hunter2@r:1 is away")
	checks := []server.Check{
		{Name: "store", Run: func(context.Context) error { return ready }},
		{Name: "plugins", Run: func(context.Context) error { return nil }},
	}
	b, err := server.Listen(t.Context(),
		server.GRPC("listen.api", "127.0.0.1:0", server.NewGRPCServer(server.GRPCOptions{Reflection: true}, register(twoPools().admin()))),
		server.HTTP("listen.metrics", "127.0.0.1:0", server.NewHTTPHandler(m, checks), nil))
	require.NoError(t, err)
	require.Nil(t, b.Addr("listen.runners"))
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, server.DefaultGrace) }()

	resp, err := client(t, b.Addr("listen.api"), insecure.NewCredentials()).ListPools(t.Context(), &adminv1.ListPoolsRequest{})
	require.NoError(t, err)
	require.Len(t, resp.GetPools(), 2)

	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	base := "http://" + b.Addr("listen.metrics").String()
	code, body := get(t, h, base+"/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `spillway_build_info{version="v9"} 1`)
	require.Contains(t, body, `spillway_pool_pending_jobs{pool="linux"} 0`)
	require.Contains(t, body, "go_goroutines")
	code, body = get(t, h, base+"/healthz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body)
	code, body = get(t, h, base+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "fail store: redis://u:[MASKED]@r:1 is away\nok plugins\n", body)
	code, _ = get(t, h, base+"/debug/pprof/")
	require.Equal(t, http.StatusNotFound, code)
	ready = nil
	code, body = get(t, h, base+"/readyz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok store\nok plugins\n", body)

	stop()
	require.NoError(t, <-served)
	_, err = net.Dial("tcp", b.Addr("listen.api").String())
	require.Error(t, err, "the address is free again")
}

func TestReadyzDoesNotWaitForAHangingCheck(t *testing.T) {
	h := server.NewHTTPHandler(server.NewMetrics("x"), []server.Check{{Name: "slow", Run: func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}}})
	w := &recorder{}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)
	require.NoError(t, err)
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusServiceUnavailable, w.code)
	require.Equal(t, "fail slow: context deadline exceeded\n", w.body.String())
}

// Anybody may ask, and the store must not notice how many do.
func TestACrowdThatAsksReadyzIsOneForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32
		h := server.NewHTTPHandler(server.NewMetrics("x"), []server.Check{{Name: "store", Run: func(ctx context.Context) error {
			looks.Add(1)
			time.Sleep(100 * time.Millisecond)
			return ctx.Err()
		}}})
		ask := func(ctx context.Context) *recorder {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil)
			if err != nil {
				t.Error(err)
			}
			w := &recorder{}
			h.ServeHTTP(w, r)
			return w
		}
		leaving, leave := context.WithCancel(t.Context())
		go ask(leaving)
		synctest.Wait()
		leave()
		for range 50 {
			go func() {
				if w := ask(t.Context()); w.body.String() != "ok store\n" {
					t.Errorf("%d %s", w.code, w.body.String())
				}
			}()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		require.EqualValues(t, 1, looks.Load())
		require.Equal(t, http.StatusOK, ask(t.Context()).code)
		require.EqualValues(t, 2, looks.Load(), "who asks later gets a new answer")
	})
}

type recorder struct {
	code int
	body bytes.Buffer
	h    http.Header
}

func (r *recorder) Header() http.Header {
	if r.h == nil {
		r.h = http.Header{}
	}
	return r.h
}
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }
func (r *recorder) WriteHeader(code int)        { r.code = code }

func TestPortInUseNamesTheSetting(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	free := peertest.FreeAddress(t)

	handler := http.NotFoundHandler()
	_, err = server.Listen(t.Context(),
		server.HTTP("listen.metrics", free, handler, nil),
		server.HTTP("listen.api", taken.Addr().String(), handler, nil),
		server.HTTP("listen.runners", "192.0.2.1:0", handler, nil))
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, "listen.api: "+taken.Addr().String()+" is in use by another program; stop it or set listen.api to another address")
	require.ErrorContains(t, err, "listen.runners: 192.0.2.1:0 is not an address of this machine")
	l, err := net.Listen("tcp", free)
	require.NoError(t, err, "all or none: the free address was given back")
	require.NoError(t, l.Close())
}

// hanging is a service whose calls end only when they are cut.
type hanging struct {
	adminv1.UnimplementedAdminServiceServer
	began chan struct{}
}

func (h *hanging) ListPools(ctx context.Context, _ *adminv1.ListPoolsRequest) (*adminv1.ListPoolsResponse, error) {
	close(h.began)
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestStopCutsWhatOutlastsTheGrace(t *testing.T) {
	h := &hanging{began: make(chan struct{})}
	b, err := server.Listen(t.Context(), server.GRPC("listen.api", "127.0.0.1:0", server.NewGRPCServer(server.GRPCOptions{}, register(h))))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, time.Millisecond) }()
	called := make(chan error, 1)
	c := client(t, b.Addr("listen.api"), insecure.NewCredentials())
	go func() {
		_, err := c.ListPools(context.WithoutCancel(t.Context()), &adminv1.ListPoolsRequest{})
		called <- err
	}()
	<-h.began
	stop()
	require.NoError(t, <-served)
	requireStatus(t, <-called, codes.Unavailable, "")
}

func TestAFailedEndpointStopsAll(t *testing.T) {
	b, err := server.Listen(t.Context(),
		server.HTTP("listen.metrics", "127.0.0.1:0", http.NotFoundHandler(), nil),
		server.GRPC("listen.api", "127.0.0.1:0", server.NewGRPCServer(server.GRPCOptions{})))
	require.NoError(t, err)
	require.NoError(t, b.Close()) // as if the system had taken the sockets away
	err = b.Serve(t.Context(), time.Second)
	require.ErrorContains(t, err, "serving failed")
	require.ErrorContains(t, err, "listen.")
}

// panicking breaks in every call.
type panicking struct {
	adminv1.UnimplementedAdminServiceServer
}

func (panicking) ListPools(context.Context, *adminv1.ListPoolsRequest) (*adminv1.ListPoolsResponse, error) {
	panic("glrt-canary-canary")
}

func TestAPanicIsAnErrorOfOneCall(t *testing.T) {
	told := make(chan string, 2)
	s := server.NewGRPCServer(server.GRPCOptions{Panicked: func(method string, value any, stack []byte) {
		told <- method + " " + value.(string)
		require.NotEmpty(t, stack)
	}}, register(panicking{}))
	b, err := server.Listen(t.Context(), server.GRPC("listen.api", "127.0.0.1:0", s))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, time.Second) }()
	c := client(t, b.Addr("listen.api"), insecure.NewCredentials())
	for range 2 {
		_, err = c.ListPools(t.Context(), &adminv1.ListPoolsRequest{})
		requireStatus(t, err, codes.Internal, "ListPools failed in an unforeseen way")
		require.NotContains(t, err.Error(), "canary")
		require.Equal(t, "/spillway.admin.v1.AdminService/ListPools glrt-canary-canary", <-told)
	}
	stop()
	require.NoError(t, <-served)
}

func TestLoggerRedactsAndFilters(t *testing.T) {
	const canary = "canarycanary"
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := server.NewLogger(&out, config.Log{Level: "warn", Format: format})
		require.NoError(t, err)
		log.Info("not shown")
		log.Warn("token glrt-"+canary, "err", errors.New("Authorization: Bearer "+canary), "s", struct{ Header string }{"PRIVATE-TOKEN: " + canary},
			"pool", "linux", "secret", config.NewSecret(canary), "url", "redis://u:"+canary+"@r:1")
		require.NotContains(t, out.String(), canary)
		require.Contains(t, out.String(), "linux")
		require.NotContains(t, out.String(), "not shown")
		if format == "json" {
			require.True(t, json.Valid(out.Bytes()), out.String())
		}
	}
	_, err := server.NewLogger(io.Discard, config.Log{Level: "loud", Format: "text"})
	require.ErrorContains(t, err, "log.level")
	_, err = server.NewLogger(io.Discard, config.Log{Level: "info", Format: "xml"})
	require.ErrorContains(t, err, "log.format")
}
