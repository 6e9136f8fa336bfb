package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/spillway-ci/spillway/config"
)

// ServerTLS reads the files of a listener, nil when TLS is off. With a CA file
// every client needs a certificate of that authority, unless anyClient is set:
// probes and Prometheus usually have none, and what they read is no secret.
func ServerTLS(files config.TLS, anyClient bool) (*tls.Config, error) { //nolint:revive // the counterpart of ClientTLS
	if !files.Enabled() {
		return nil, nil //nolint:nilnil // nil is how net/http and grpc say "no TLS" too
	}
	cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("listen.tls: cannot use %s with %s: %w", files.CertFile, files.KeyFile, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if files.CAFile == "" || anyClient {
		return c, nil
	}
	if c.ClientCAs, err = CertPool(files.CAFile); err != nil {
		return nil, fmt.Errorf("listen.tls.ca_file: %w", err)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	return c, nil
}

// CertPool reads the certificates of an authority.
func CertPool(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", path)
	}
	return pool, nil
}

// PeerTLS is how other replicas are reached, which have a certificate as ours: of an
// authority of the system, or of one whose certificate is in the same file.
func PeerTLS(own config.TLS) (*tls.Config, error) {
	c, err := ClientTLS(config.TLS{CertFile: own.CertFile, KeyFile: own.KeyFile}, "")
	if err != nil {
		return nil, err
	}
	if c.RootCAs, err = x509.SystemCertPool(); err != nil {
		c.RootCAs = x509.NewCertPool() // a machine without any: ours are enough
	}
	for _, path := range []string{own.CertFile, own.CAFile} {
		if path == "" {
			continue
		}
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("listen.tls: %w", err)
		}
		c.RootCAs.AppendCertsFromPEM(pem)
	}
	return c, nil
}

// ClientTLS reads the files of a client: whom to trust (the system's authorities
// without a CA file) and, if it has one, its own certificate. serverName is what
// the server's certificate must be for; empty means the address.
func ClientTLS(files config.TLS, serverName string) (*tls.Config, error) {
	c := &tls.Config{ServerName: serverName, MinVersion: tls.VersionTLS12}
	if files.CAFile != "" {
		roots, err := CertPool(files.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		c.RootCAs = roots
	}
	if files.Enabled() {
		cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cannot use %s with %s: %w", files.CertFile, files.KeyFile, err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}
