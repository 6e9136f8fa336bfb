package tlsfiles_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"

	"github.com/spillway-ci/spillway/internal/tlsfiles"
	"github.com/spillway-ci/spillway/internal/tlsfiles/tlstest"
)

// always looks at the files whenever asked.
const always = time.Nanosecond

// told collects what a source says.
type told struct {
	mu       sync.Mutex
	replaced int
	kept     []error
}

func (o *told) options() tlsfiles.Options {
	return tlsfiles.Options{
		Every: always,
		Replaced: func(*tlsfiles.Material) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.replaced++
		},
		Kept: func(err error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.kept = append(o.kept, err)
		},
	}
}

func open(t *testing.T, f tlsfiles.Files) (*tlsfiles.Source, *told) {
	t.Helper()
	o := &told{}
	s, err := tlsfiles.Open(f, o.options())
	require.NoError(t, err)
	return s, o
}

func inUse(m *tlsfiles.Material) string { return m.Certificate.Leaf.SerialNumber.String() }

func TestRenewedFilesAreTakenUp(t *testing.T) {
	a := tlstest.New(t, "a")
	dir := t.TempDir()
	first, second := a.Issue(t, tlstest.Request{Name: "x"}), a.Issue(t, tlstest.Request{Name: "x"})
	s, o := open(t, tlstest.Write(t, dir, first, tlstest.Bundle(a)))
	require.Equal(t, first.Serial, inUse(s.Check()))
	require.Zero(t, o.replaced)

	f := tlstest.Files(dir)
	tlstest.Put(t, f.Cert, second.Cert) // its key is still on the way
	require.Equal(t, first.Serial, inUse(s.Check()))
	require.Equal(t, first.Serial, inUse(s.Check()))
	require.Len(t, o.kept, 1, "one reason is told once")
	require.ErrorIs(t, o.kept[0], tlsfiles.ErrPair)

	tlstest.Put(t, f.Key, second.Key)
	require.Equal(t, second.Serial, inUse(s.Check()))
	require.Equal(t, 1, o.replaced)
	require.Equal(t, second.Serial, inUse(s.Check()))
	require.Equal(t, 1, o.replaced, "the same contents are no news")
}

func TestHalfWrittenFilesChangeNothing(t *testing.T) {
	a, b := tlstest.New(t, "a"), tlstest.New(t, "b")
	first, second := a.Issue(t, tlstest.Request{}), a.Issue(t, tlstest.Request{})
	both := tlstest.Bundle(a, b)
	for name, damage := range map[string]func(f tlsfiles.Files) error{
		"certificate cut off": func(f tlsfiles.Files) error { return os.WriteFile(f.Cert, second.Cert[:len(second.Cert)/2], 0o600) },
		"certificate empty":   func(f tlsfiles.Files) error { return os.WriteFile(f.Cert, nil, 0o600) },
		"key gone":            func(f tlsfiles.Files) error { return os.Remove(f.Key) },
		"key of another":      func(f tlsfiles.Files) error { return os.WriteFile(f.Key, second.Key, 0o600) },
		"authorities cut off": func(f tlsfiles.Files) error { return os.WriteFile(f.CA, both[:len(both)-100], 0o600) },
		"authorities empty":   func(f tlsfiles.Files) error { return os.WriteFile(f.CA, nil, 0o600) },
		"too large":           func(f tlsfiles.Files) error { return os.WriteFile(f.CA, make([]byte, tlsfiles.MaxFileBytes+1), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			f := tlstest.Write(t, t.TempDir(), first, tlstest.Bundle(a))
			s, o := open(t, f)
			before := s.Current()
			require.NoError(t, damage(f))
			require.Same(t, before, s.Check())
			require.Len(t, o.kept, 1)
			_, err := tlsfiles.Open(f, tlsfiles.Options{})
			require.Error(t, err, "and nobody could begin with them")

			tlstest.Write(t, filepath.Dir(f.Cert), second, both)
			require.Equal(t, second.Serial, inUse(s.Check()))
		})
	}
}

func TestWhatIsNotValidNowDoesNotReplaceWhatIs(t *testing.T) {
	a := tlstest.New(t, "a")
	good := a.Issue(t, tlstest.Request{})
	expired := a.Issue(t, tlstest.Request{Begins: -2 * time.Hour, Lasts: -time.Hour})
	early := a.Issue(t, tlstest.Request{Begins: time.Hour, Lasts: 2 * time.Hour})
	dir := t.TempDir()
	s, o := open(t, tlstest.Write(t, dir, good, tlstest.Bundle(a)))
	for _, p := range []tlstest.Pair{expired, early} {
		tlstest.Write(t, dir, p, nil)
		require.Equal(t, good.Serial, inUse(s.Check()))
		require.ErrorIs(t, o.kept[len(o.kept)-1], tlsfiles.ErrTime)
	}

	late, _ := open(t, tlstest.Write(t, t.TempDir(), expired, tlstest.Bundle(a)))
	require.Equal(t, expired.Serial, inUse(late.Check()), "whoever renews it may be late, and is waited for")
	tlstest.Write(t, filepath.Dir(late.Files().Cert), good, nil)
	require.Equal(t, good.Serial, inUse(late.Check()))
}

// Kubernetes and others have the files in a folder behind a link, and swap the link.
func TestSwappedLinksAreFollowed(t *testing.T) {
	a := tlstest.New(t, "a")
	dir := t.TempDir()
	version := func(n int) string {
		folder := filepath.Join(dir, fmt.Sprintf("..v%d", n))
		require.NoError(t, os.Mkdir(folder, 0o700))
		return folder
	}
	swap := func(folder string) {
		require.NoError(t, os.Symlink(folder, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	v1 := version(1)
	first := a.Issue(t, tlstest.Request{})
	tlstest.Write(t, v1, first, tlstest.Bundle(a))
	swap(v1)
	s, o := open(t, tlstest.Files(filepath.Join(dir, "..data")))
	require.Equal(t, first.Serial, inUse(s.Check()))
	for n := 2; n < 20; n++ {
		folder, next := version(n), a.Issue(t, tlstest.Request{})
		tlstest.Write(t, folder, next, tlstest.Bundle(a))
		swap(folder)
		require.Equal(t, next.Serial, inUse(s.Check()))
	}
	require.Empty(t, o.kept)
}

// The files are not read for each of a flood of connections.
func TestFilesAreReadNowAndThen(t *testing.T) {
	a := tlstest.New(t, "a")
	dir := t.TempDir()
	first := a.Issue(t, tlstest.Request{})
	s, err := tlsfiles.Open(tlstest.Write(t, dir, first, tlstest.Bundle(a)), tlsfiles.Options{Every: time.Hour})
	require.NoError(t, err)
	tlstest.Write(t, dir, a.Issue(t, tlstest.Request{}), nil)
	for range 100 {
		require.Equal(t, first.Serial, inUse(s.Check()))
	}
}

// echo is a server that says which certificate its client has, and goes on.
func echo(t *testing.T, config *tls.Config) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				c := tls.Server(conn, config)
				if c.Handshake() == nil {
					_, _ = io.Copy(c, c)
				}
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, address string, config *tls.Config) (*tls.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 80*time.Second)
	defer cancel()
	c, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := c.(*tls.Conn)
	t.Cleanup(func() { _ = conn.Close() })
	return conn, say(conn) // in TLS 1.3 a client hears of its refusal when it reads
}

func say(c *tls.Conn) error {
	if err := c.SetDeadline(time.Now().Add(80 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return err
}

// A whole rotation: both sides get certificates of a new authority, with a time in which
// both authorities are known. What is connected stays connected through all of it.
func TestAuthorityIsRotatedUnderOpenConnections(t *testing.T) {
	old, next := tlstest.New(t, "old"), tlstest.New(t, "new")
	serverDir, clientDir := t.TempDir(), t.TempDir()
	server, _ := open(t, tlstest.Write(t, serverDir, old.Issue(t, tlstest.Request{Name: "server"}), tlstest.Bundle(old)))
	client, _ := open(t, tlstest.Write(t, clientDir, old.Issue(t, tlstest.Request{Name: "client"}), tlstest.Bundle(old)))
	address := echo(t, server.Server(tlsfiles.NamedClient))
	first, err := dial(t, address, client.Client(""))
	require.NoError(t, err)

	both := tlstest.Bundle(old, next)
	tlstest.Put(t, server.Files().CA, both)
	tlstest.Put(t, client.Files().CA, both)
	tlstest.Write(t, clientDir, next.Issue(t, tlstest.Request{Name: "client"}), nil)
	second, err := dial(t, address, client.Client(""))
	require.NoError(t, err)
	tlstest.Write(t, serverDir, next.Issue(t, tlstest.Request{Name: "server"}), nil)
	third, err := dial(t, address, client.Client(""))
	require.NoError(t, err)
	require.NotEqual(t, second.ConnectionState().PeerCertificates[0].SerialNumber, third.ConnectionState().PeerCertificates[0].SerialNumber)

	tlstest.Put(t, server.Files().CA, tlstest.Bundle(next))
	tlstest.Put(t, client.Files().CA, tlstest.Bundle(next))
	fourth, err := dial(t, address, client.Client(""))
	require.NoError(t, err)
	for _, c := range []*tls.Conn{first, second, third, fourth} {
		require.NoError(t, say(c))
	}

	outsider, _ := open(t, tlstest.Write(t, t.TempDir(), old.Issue(t, tlstest.Request{Name: "client"}), both))
	_, err = dial(t, address, outsider.Client(""))
	require.Error(t, err, "the old authority is known no more")
}

func TestClientsOfAListener(t *testing.T) {
	a, b := tlstest.New(t, "a"), tlstest.New(t, "b")
	server, _ := open(t, tlstest.Write(t, t.TempDir(), a.Issue(t, tlstest.Request{}), tlstest.Bundle(a)))
	named, anyone := echo(t, server.Server(tlsfiles.NamedClient)), echo(t, server.Server(tlsfiles.AnyClient))
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	with := func(by *tlstest.Authority, r tlstest.Request) *tls.Config {
		p := by.Issue(t, r)
		pair, err := tls.X509KeyPair(p.Cert, p.Key)
		require.NoError(t, err)
		// GetClientCertificate presents it whatever the server says that it knows.
		return &tls.Config{RootCAs: pool, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	}
	without := &tls.Config{RootCAs: pool}
	for _, c := range []struct {
		name    string
		address string
		client  *tls.Config
		refused bool
	}{
		{"known", named, with(a, tlstest.Request{}), false},
		{"none, which the server says itself", named, without, false},
		{"of an unknown authority", named, with(b, tlstest.Request{}), true},
		{"expired", named, with(a, tlstest.Request{Begins: -2 * time.Hour, Lasts: -time.Minute}), true},
		{"not asked for", anyone, with(b, tlstest.Request{}), false},
	} {
		_, err := dial(t, c.address, c.client)
		require.Equal(t, c.refused, err != nil, "%s: %v", c.name, err)
	}
}

// A server's certificate must be for the address that is dialed, an IP address too.
func TestClientHoldsServersToTheirNames(t *testing.T) {
	a := tlstest.New(t, "a")
	server, _ := open(t, tlstest.Write(t, t.TempDir(), a.Issue(t, tlstest.Request{DNS: "router.example"}), tlstest.Bundle(a)))
	address := echo(t, server.Server(tlsfiles.AnyClient))
	_, err := dial(t, address, server.Client(""))
	require.NoError(t, err)
	_, err = dial(t, address, server.Client("router.example"))
	require.NoError(t, err)
	_, err = dial(t, address, server.Client("127.0.0.2"))
	require.Error(t, err)
	_, err = dial(t, address, server.Client("other.example"))
	require.Error(t, err)
}

// Other replicas may have a certificate that vouches for itself: the one in our own file.
func TestPeersAreVouchedForByOurOwnFiles(t *testing.T) {
	a := tlstest.New(t, "a")
	own := a.Issue(t, tlstest.Request{})
	chain := tlstest.Pair{Cert: append(own.Cert, tlstest.Bundle(a)...), Key: own.Key, Serial: own.Serial}
	f := tlstest.Write(t, t.TempDir(), chain, nil)
	f.CA = ""
	s, _ := open(t, f)
	address := echo(t, s.Server(tlsfiles.AnyClient))
	_, err := dial(t, address, s.Peer(""))
	require.NoError(t, err)
	_, err = dial(t, address, s.Client(""))
	require.Error(t, err, "the system knows no such authority")
}

// TestGRPCServersLookAtNoSocket: what the kernel says of it would be kept for as long as
// the connection lasts.
func TestGRPCServersLookAtNoSocket(t *testing.T) {
	a := tlstest.New(t, "a")
	source, _ := open(t, tlstest.Write(t, t.TempDir(), a.Issue(t, tlstest.Request{}), tlstest.Bundle(a)))
	creds := tlsfiles.ServerCredentials(source.Server(tlsfiles.AnyClient))
	trust := x509.NewCertPool()
	trust.AddCert(a.Cert)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	client := make(chan error, 2)
	meet := func(config *tls.Config) (net.Conn, credentials.AuthInfo, error) {
		go func() {
			_, err := dial(t, l.Addr().String(), config)
			client <- err
		}()
		conn, err := l.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return creds.ServerHandshake(conn)
	}

	conn, info, err := meet(&tls.Config{RootCAs: trust, NextProtos: []string{"h2"}})
	require.NoError(t, err)
	require.Equal(t, "tls", info.AuthType())
	require.NotImplements(t, (*syscall.Conn)(nil), conn)
	_, err = io.CopyN(conn, conn, int64(len("hello")))
	require.NoError(t, err)
	require.NoError(t, <-client)

	_, _, err = meet(&tls.Config{RootCAs: x509.NewCertPool(), NextProtos: []string{"h2"}})
	require.Error(t, err, "the client trusts nobody")
	require.Error(t, <-client)
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, "127.9.9.9:1": true,
		"10.0.0.1:1": false, "example.org:1": false, "localhost": false, "": false, "0.0.0.0:1": false, ":1": false,
	} {
		require.Equal(t, want, tlsfiles.Loopback(addr), addr)
	}
}
