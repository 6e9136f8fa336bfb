package suite

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The files of an authority, and of the server that has its certificate from it.
const (
	authorityCert = "ca.crt"
	authorityKey  = "ca.key"
	serverCert    = "server.crt"
	serverKey     = "server.key"
)

// certificateLife is longer than any benchmark.
const certificateLife = 24 * time.Hour

// authority issues certificates, as the one of a fleet does: a runner has one of its own.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// writeAuthority makes an authority and writes it into dir, with a server's certificate
// for 127.0.0.1.
func writeAuthority(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificateTemplate(1, "authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	server, err := (&authority{cert, key}).issue(2, "server")
	if err != nil {
		return err
	}
	serverSecret, _ := server.PrivateKey.(*ecdsa.PrivateKey)
	return errors.Join(
		writePair(dir, authorityCert, authorityKey, der, key),
		writePair(dir, serverCert, serverKey, server.Certificate[0], serverSecret),
	)
}

func certificateTemplate(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLife),
	}
}

// issue makes a certificate that is good for servers and clients.
func (a *authority) issue(serial int64, name string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := certificateTemplate(serial, name)
	template.IPAddresses, template.KeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// openAuthority reads the authority in dir.
func openAuthority(dir string) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, authorityCert), filepath.Join(dir, authorityKey))
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s is a %T", authorityKey, pair.PrivateKey)
	}
	return &authority{pair.Leaf, key}, nil
}

// pool is whom both ends trust.
func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func writePair(dir, certFile, keyFile string, der []byte, key *ecdsa.PrivateKey) error {
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	return errors.Join(
		os.WriteFile(filepath.Join(dir, certFile), cert, 0o600),
		os.WriteFile(filepath.Join(dir, keyFile), private, 0o600),
	)
}
