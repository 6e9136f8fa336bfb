package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
	"github.com/spillway-ci/spillway/internal/tlsfiles/tlstest"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
	"github.com/spillway-ci/spillway/server"
)

// textLog is a log that several goroutines write.
type textLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *textLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *textLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func settings(f tlsfiles.Files) config.TLS {
	return config.TLS{CertFile: f.Cert, KeyFile: f.Key, CAFile: f.CA}
}

func certificates(w io.Writer) (*server.Certificates, *server.Metrics) {
	m := server.NewMetrics("x")
	return server.NewCertificates(slog.New(slog.NewTextHandler(w, nil)), m), m
}

// sample is the value of the one sample that has the label value.
func sample(t *testing.T, m *server.Metrics, name, labelValue string) float64 {
	t.Helper()
	families, err := m.Registry().Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			for _, l := range metric.GetLabel() {
				if f.GetName() == name && l.GetValue() == labelValue {
					return metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
				}
			}
		}
	}
	require.FailNow(t, "no such sample", "%s %s", name, labelValue)
	return 0
}

const (
	expiry  = "spillway_tls_certificate_expiry_seconds"
	reloads = "spillway_tls_reloads_total"
)

// A client without a certificate is told so in a sentence where one is needed, and let in
// where none is; one of an unknown authority does not get through the handshake.
func TestClientsWithAndWithoutCertificates(t *testing.T) {
	a, other := tlstest.New(t, "ours"), tlstest.New(t, "other")
	files := tlstest.Write(t, t.TempDir(), a.Issue(t, tlstest.Request{Name: "server"}), tlstest.Bundle(a))
	certs, metrics := certificates(io.Discard)
	api, err := certs.Listener(settings(files), tlsfiles.NamedClient)
	require.NoError(t, err)
	probes, err := certs.Listener(settings(files), tlsfiles.AnyClient)
	require.NoError(t, err)
	guard := access.NewGuard(access.GuardOptions{NeedCertificate: true, Rules: access.DefaultRules()})
	b, err := server.Listen(t.Context(),
		server.GRPC("listen.api", "127.0.0.1:0", server.NewGRPCServer(server.GRPCOptions{TLS: api, Also: []grpc.ServerOption{grpc.ChainUnaryInterceptor(guard.Unary)}}, register(twoPools().admin()))),
		server.HTTP("listen.metrics", "127.0.0.1:0", server.NewHTTPHandler(metrics, nil), probes))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, time.Second) }()
	defer func() {
		stop()
		require.NoError(t, <-served)
	}()
	ask := func(c *tls.Config) error {
		_, err := client(t, b.Addr("listen.api"), credentials.NewTLS(c)).ListPools(t.Context(), &adminv1.ListPoolsRequest{})
		return err
	}
	of := func(f tlsfiles.Files) *tls.Config {
		c, err := server.ClientTLS(settings(f), "")
		require.NoError(t, err)
		return c
	}
	require.NoError(t, ask(of(tlstest.Write(t, t.TempDir(), a.Issue(t, tlstest.Request{Name: "client"}), tlstest.Bundle(a)))))
	requireStatus(t, ask(of(tlsfiles.Files{CA: files.CA})), codes.Unauthenticated, "no client certificate")
	requireStatus(t, ask(of(tlstest.Write(t, t.TempDir(), other.Issue(t, tlstest.Request{Name: "client"}), tlstest.Bundle(a)))), codes.Unavailable, "")
	requireStatus(t, ask(of(tlstest.Write(t, t.TempDir(), a.Issue(t, tlstest.Request{Name: "client", Begins: -2 * time.Hour, Lasts: -time.Minute}), tlstest.Bundle(a)))), codes.Unavailable, "")

	probe := of(tlsfiles.Files{CA: files.CA})
	probe.ServerName = "127.0.0.1"
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: probe, DisableKeepAlives: true}}
	code, body := get(t, h, "https://"+b.Addr("listen.metrics").String()+"/readyz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body)
}

// What is renewed on disk is noticed without a connection, logged, counted and shown.
func TestRenewalsAreSeen(t *testing.T) {
	a := tlstest.New(t, "a")
	dir := t.TempDir()
	files := tlstest.Write(t, dir, a.Issue(t, tlstest.Request{Lasts: 2 * time.Hour}), tlstest.Bundle(a))
	var log textLog
	certs, metrics := certificates(&log)
	s, err := certs.Open("listen.tls", settings(files))
	require.NoError(t, err)
	same, err := certs.Open("listen.tls", settings(files))
	require.NoError(t, err)
	require.Same(t, s, same)
	require.InDelta(t, (2 * time.Hour).Seconds(), sample(t, metrics, expiry, files.Cert), 60)
	require.InDelta(t, (30 * 24 * time.Hour).Seconds(), sample(t, metrics, expiry, files.CA), 2*time.Hour.Seconds()) // a day may have 23 or 25 hours

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go certs.Run(ctx)
	tlstest.Put(t, files.Cert, []byte("half"))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "certificates on disk are of no use") }, 80*time.Second, 50*time.Millisecond)
	tlstest.Write(t, dir, a.Issue(t, tlstest.Request{Lasts: 3 * time.Hour}), nil)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "certificates were replaced") }, 80*time.Second, 50*time.Millisecond)
	require.InDelta(t, (3 * time.Hour).Seconds(), sample(t, metrics, expiry, files.Cert), 60)
	require.Equal(t, 1.0, sample(t, metrics, reloads, "used"))
	require.GreaterOrEqual(t, sample(t, metrics, reloads, "kept"), 1.0)
}

func TestTLSFilesThatDoNotWork(t *testing.T) {
	certs, _ := certificates(io.Discard)
	none, err := certs.Listener(config.TLS{}, tlsfiles.NamedClient)
	require.NoError(t, err)
	require.Nil(t, none)
	_, err = certs.Listener(config.TLS{CertFile: "none.crt", KeyFile: "none.key"}, tlsfiles.NamedClient)
	require.ErrorContains(t, err, "listen.tls: open none.crt")
	require.ErrorIs(t, err, os.ErrNotExist)

	empty := filepath.Join(t.TempDir(), "ca")
	require.NoError(t, os.WriteFile(empty, []byte("x"), 0o600))
	_, err = server.ClientTLS(config.TLS{CAFile: empty}, "")
	require.ErrorIs(t, err, tlsfiles.ErrAuthorities)
	require.ErrorContains(t, err, "has no certificate in PEM form")
	_, err = server.ClientTLS(config.TLS{CertFile: empty, KeyFile: empty}, "")
	require.ErrorIs(t, err, tlsfiles.ErrPair)
}

func TestExpiredCertificateIsNoReasonNotToStart(t *testing.T) {
	a := tlstest.New(t, "a")
	files := tlstest.Write(t, t.TempDir(), a.Issue(t, tlstest.Request{Begins: -2 * time.Hour, Lasts: -time.Hour}), tlstest.Bundle(a))
	var log textLog
	certs, metrics := certificates(&log)
	_, err := certs.Open("listen.tls", settings(files))
	require.NoError(t, err)
	require.Contains(t, log.String(), "level=ERROR msg=\"the certificate has expired")
	require.InDelta(t, -time.Hour.Seconds(), sample(t, metrics, expiry, files.Cert), 60)
}
