package main

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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

// certificate makes one that vouches for itself, for 127.0.0.1.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	}
	return certFile, keyFile
}

func authorityFile(t *testing.T) string {
	t.Helper()
	certFile, _ := certificate(t)
	return certFile
}

func TestMutualTLS(t *testing.T) {
	certFile, keyFile := certificate(t)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	clients := x509.NewCertPool()
	clients.AddCert(pair.Leaf)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})))
	adminv1.RegisterAdminServiceServer(s, fakeAdmin{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		s.Stop()
		require.NoError(t, <-served)
	}()
	addr := l.Addr().String()

	code, out, errs := ctl(t, addr, "", "pools", "--ca-file", certFile, "--cert-file", certFile, "--key-file", keyFile)
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "linux")

	code, _, errs = ctl(t, addr, "", "pools", "--ca-file", authorityFile(t))
	require.Equal(t, exitUnreachable, code)
	require.Contains(t, errs, "its certificate was not accepted: name the authority with --ca-file")

	code, _, errs = ctl(t, addr, "", "pools", "--ca-file", certFile)
	require.Equal(t, exitUnreachable, code)
	require.Contains(t, errs, "a client certificate (--cert-file and --key-file)")

	code, _, errs = ctl(t, addr, "", "pools")
	require.Equal(t, exitUnreachable, code)
	require.Contains(t, errs, "it may want TLS (--ca-file)")

	code, _, errs = ctl(t, addr, "", "pools", "--ca-file", keyFile)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "has no certificate in PEM form")
}
