package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

	"github.com/spillway-ci/spillway/gitlab/realrunner"
)

// With listen.tls runners reach us as GitLab by https, and their router by grpcs or wss.
func TestRealRunnerRoutedOverTLS(t *testing.T) {
	for _, scheme := range []string{"grpcs", "wss"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			s := newRealStand(t)
			s.certFile, s.keyFile = certificateFiles(t)
			f := s.route(strings.TrimSuffix(scheme, "s"), true)
			f.url = "https://" + s.listen
			f.gitlab = strings.Replace(f.gitlab, strings.TrimSuffix(scheme, "s")+"://", scheme+"://", 1)
			require.Contains(t, f.gitlab, scheme+"://")
			r := s.serve(f, realrunner.Options{URL: f.url, Router: true, CAFile: s.certFile})
			s.awaitEach(r, s.enqueue(2, "echo it ran")...)
			requireNoDirectPolls(t, s.gitlabStand)
			require.Eventually(t, func() bool { return strings.Contains(r.err.String(), "removed by us: idle") }, within, 100*time.Millisecond, "%v", r.err)
			r.stop()
		})
	}
}

// certificateFiles is a certificate for 127.0.0.1 that vouches for itself.
func certificateFiles(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
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
