package agent_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/spillway-ci/spillway/agent"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// authority issues certificates for loopback addresses.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	writePEM(t, a.caFile(), "CERTIFICATE", der)
	return a
}

func (a *authority) caFile() string { return filepath.Join(a.dir, "ca.pem") }

// issue writes a certificate and its key, and returns their files.
func (a *authority) issue(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+"-key.pem")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", keyDER)
	return certFile, keyFile
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func TestMutualTLS(t *testing.T) {
	a := newAuthority(t)
	serverCert, err := tls.LoadX509KeyPair(a.issue(t, "router"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &router{address: listener.Addr().String(), streams: make(chan *stream, 16)}
	r.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{serverCert},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	})))
	runnerv1.RegisterRunnerServiceServer(r.server, r)
	go func() { _ = r.server.Serve(listener) }()
	t.Cleanup(r.server.Stop)

	certFile, keyFile := a.issue(t, "machine")
	config, err := agent.LoadTLS(a.caFile(), certFile, keyFile, nil)
	require.NoError(t, err)
	startAgent(t, r, func(o *agent.Options) { o.TLS = config })
	r.accept(t)
}

func TestLoadTLSSaysWhatIsWrong(t *testing.T) {
	a := newAuthority(t)
	certFile, keyFile := a.issue(t, "machine")
	_, otherKey := a.issue(t, "other")
	for name, files := range map[string][3]string{
		"no such authority":     {a.caFile() + ".absent", "", ""},
		"authority is no PEM":   {os.DevNull, "", ""},
		"certificate, no key":   {"", certFile, ""},
		"key, no certificate":   {"", "", keyFile},
		"key of another":        {"", certFile, otherKey},
		"certificate is absent": {"", certFile + ".absent", keyFile},
	} {
		_, err := agent.LoadTLS(files[0], files[1], files[2], nil)
		require.Error(t, err, name)
	}
}

// What is named by mistake is not read to its end, which it may not have.
func TestATokenFileIsShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	read := func(content string) (string, error) {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return agent.TokenFile(path)()
	}
	got, err := read("  " + token + "\n")
	require.NoError(t, err)
	require.Equal(t, token, got)
	_, err = read(token + strings.Repeat("\n", 1024-len(token)))
	require.NoError(t, err)
	_, err = read(token + strings.Repeat("\n", 1025-len(token)))
	require.ErrorContains(t, err, "more than 1024 bytes")
	require.NotContains(t, err.Error(), token)
	_, err = agent.TokenFile("/dev/zero")()
	require.ErrorContains(t, err, "more than 1024 bytes")
}
