// Package tlstest is an authority for tests: it issues certificates for loopback
// addresses into files, as an agent of a real one would.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/tlsfiles"
)

// Authority issues certificates.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority with a key of its own.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 0, 30),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &Authority{cert, key}
}

func serial(t testing.TB) *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	require.NoError(t, err)
	return n
}

// Request is what a certificate is to say.
type Request struct {
	Name     string        // common name
	DNS, URI string        // more names; empty: none
	Begins   time.Duration // from now; 0: an hour ago
	Lasts    time.Duration // from now; 0: an hour
}

// Pair is a certificate with its key, as PEM.
type Pair struct {
	Cert, Key []byte
	Serial    string // in decimal
}

// Issue makes a certificate for 127.0.0.1 that is good for servers and clients.
func (a *Authority) Issue(t testing.TB, r Request) Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: r.Name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if r.Begins != 0 {
		template.NotBefore = now.Add(r.Begins)
	}
	if r.Lasts != 0 {
		template.NotAfter = now.Add(r.Lasts)
	}
	if r.DNS != "" {
		template.DNSNames = []string{r.DNS}
	}
	if r.URI != "" {
		uri, err := url.Parse(r.URI)
		require.NoError(t, err)
		template.URIs = []*url.URL{uri}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return Pair{
		Cert:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:    pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		Serial: template.SerialNumber.String(),
	}
}

// Bundle is the certificates of authorities, as a CA file has them.
func Bundle(of ...*Authority) []byte {
	var b strings.Builder
	for _, a := range of {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw}))
	}
	return []byte(b.String())
}

// Files are the paths in a folder of one side's certificate, key and authorities.
func Files(folder string) tlsfiles.Files {
	return tlsfiles.Files{Cert: filepath.Join(folder, "tls.crt"), Key: filepath.Join(folder, "tls.key"), CA: filepath.Join(folder, "ca.crt")}
}

// Put replaces a file by renaming: whoever reads it finds the old contents or the new.
func Put(t testing.TB, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", content, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// Write puts a pair and authorities into a folder's files, one after the other; a nil ca
// leaves those there are.
func Write(t testing.TB, folder string, p Pair, ca []byte) tlsfiles.Files {
	t.Helper()
	f := Files(folder)
	Put(t, f.Cert, p.Cert)
	Put(t, f.Key, p.Key)
	if ca != nil {
		Put(t, f.CA, ca)
	}
	return f
}
