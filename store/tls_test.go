package store_test

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/tlsfiles"
	"github.com/spillway-ci/spillway/internal/tlsfiles/tlstest"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

// tlsFront is TLS in front of a Redis that has none: it remembers who came, and can end
// what is connected.
type tlsFront struct {
	addr string
	mu   sync.Mutex
	seen []string // serial numbers of clients
	open []net.Conn
}

func newTLSFront(t *testing.T, behind string, config *tls.Config) *tlsFront {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	f := &tlsFront{addr: l.Addr().String()}
	t.Cleanup(func() {
		_ = l.Close()
		f.cut()
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go f.pass(conn.(*tls.Conn), behind)
		}
	}()
	return f
}

func (f *tlsFront) pass(client *tls.Conn, behind string) {
	defer func() { _ = client.Close() }()
	if client.Handshake() != nil || len(client.ConnectionState().PeerCertificates) == 0 {
		return
	}
	redis, err := net.Dial("tcp", behind)
	if err != nil {
		return
	}
	f.mu.Lock()
	f.seen = append(f.seen, client.ConnectionState().PeerCertificates[0].SerialNumber.String())
	f.open = append(f.open, client, redis)
	f.mu.Unlock()
	go func() { _, _ = io.Copy(redis, client) }()
	_, _ = io.Copy(client, redis)
}

// cut ends every connection.
func (f *tlsFront) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		_ = c.Close()
	}
	f.open = nil
}

func (f *tlsFront) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[len(f.seen)-1]
}

// New connections to Redis show what is on the disk then, and trust whom it names then.
func TestCertificatesForRedisAreRenewed(t *testing.T) {
	old, next := tlstest.New(t, "old"), tlstest.New(t, "new")
	redis := storetest.StartServer(t)
	serverDir, clientDir := t.TempDir(), t.TempDir()
	server, err := tlsfiles.Open(tlstest.Write(t, serverDir, old.Issue(t, tlstest.Request{Name: "redis"}), tlstest.Bundle(old)), tlsfiles.Options{Every: time.Nanosecond})
	require.NoError(t, err)
	pair := old.Issue(t, tlstest.Request{Name: "replica"})
	client, err := tlsfiles.Open(tlstest.Write(t, clientDir, pair, tlstest.Bundle(old)), tlsfiles.Options{Every: time.Nanosecond})
	require.NoError(t, err)
	front := newTLSFront(t, redis.Addr, server.Server(tlsfiles.NamedClient))

	s, err := store.Open(t.Context(), store.Options{Addrs: []string{front.addr}, Timeout: patiently, TLS: func() *tls.Config { return client.Client("") }})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.Equal(t, pair.Serial, front.last())

	both := tlstest.Bundle(old, next)
	tlstest.Put(t, filepath.Join(serverDir, "ca.crt"), both)
	tlstest.Put(t, filepath.Join(clientDir, "ca.crt"), both)
	pair = next.Issue(t, tlstest.Request{Name: "replica"})
	tlstest.Write(t, clientDir, pair, nil)
	tlstest.Write(t, serverDir, next.Issue(t, tlstest.Request{Name: "redis"}), nil)
	require.NoError(t, s.Ping(t.Context()), "what is connected goes on")
	require.NotEqual(t, pair.Serial, front.last())

	front.cut()
	require.Eventually(t, func() bool { return s.Ping(t.Context()) == nil && front.last() == pair.Serial }, soon, 20*time.Millisecond)

	other, err := store.Open(t.Context(), store.Options{Addrs: []string{front.addr}, Timeout: patiently, TLS: func() *tls.Config { return client.Client("other.example") }})
	require.ErrorContains(t, err, "failed to verify certificate")
	require.Nil(t, other)
}
