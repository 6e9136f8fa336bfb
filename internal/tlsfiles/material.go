package tlsfiles

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// MaxFileBytes bounds a file [bytes]: the authorities of a whole system are 250 KiB.
const MaxFileBytes = 1 << 20

// The reasons why files are of no use, for errors.Is.
var (
	// ErrPair: certificate and key are not of each other, or one of them is no PEM. It is
	// also how files look between two writes.
	ErrPair = errors.New("certificate and key do not belong together")
	// ErrAuthorities: the file of authorities holds none, or is cut off.
	ErrAuthorities = errors.New("no usable authorities")
	// ErrTime: the certificate has expired, or is not valid yet.
	ErrTime = errors.New("the certificate is not valid now")
)

// Files names what one side of a connection has, as PEM. Cert and Key are both set or
// neither.
type Files struct {
	Cert, Key string
	CA        string // whose certificates are accepted; empty: those of the system
}

// Material is what the files held at one time, as a whole. It is never changed.
type Material struct {
	Certificate *tls.Certificate // nil: the files have none; its Leaf is set
	// Authorities are those of the CA file; nil without one.
	Authorities *x509.CertPool
	// AuthoritiesEnd is when the first of them expires; zero without a CA file.
	AuthoritiesEnd time.Time

	vouching []*x509.Certificate // of both files: whom another server like us may be vouched for by
}

// NotAfter is when the certificate expires; zero without one.
func (m *Material) NotAfter() time.Time {
	if m.Certificate == nil {
		return time.Time{}
	}
	return m.Certificate.Leaf.NotAfter
}

// valid wraps ErrTime if the certificate is not valid at that time.
func (m *Material) valid(now time.Time) error {
	if m.Certificate == nil {
		return nil
	}
	switch leaf := m.Certificate.Leaf; {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("%w: it expired at %s", ErrTime, leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("%w: it begins at %s", ErrTime, leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// contents are the files' bytes.
type contents struct{ cert, key, ca []byte }

func read(f Files) (c contents, err error) {
	for _, one := range []struct {
		path string
		into *[]byte
	}{{f.Cert, &c.cert}, {f.Key, &c.key}, {f.CA, &c.ca}} {
		if one.path == "" {
			continue
		}
		if *one.into, err = readFile(one.path); err != nil {
			return contents{}, err
		}
	}
	return c, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only: nothing can be lost
	b, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err == nil && len(b) > MaxFileBytes {
		err = fmt.Errorf("%s has more than %d bytes; is it the right file?", path, MaxFileBytes)
	}
	return b, err
}

// sum tells contents from others without keeping a second copy of the key.
func (c contents) sum() [sha256.Size]byte {
	h := sha256.New()
	for _, part := range [][]byte{c.cert, c.key, c.ca} {
		_, _ = fmt.Fprintf(h, "%d:", len(part)) // a hash takes everything
		_, _ = h.Write(part)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// material makes sense of the contents, whenever they are valid.
func (c contents) material(f Files) (*Material, error) {
	m := &Material{}
	if f.Cert != "" {
		pair, err := tls.X509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, fmt.Errorf("%w: cannot use %s with %s: %w", ErrPair, f.Cert, f.Key, err)
		}
		m.Certificate = &pair
		for _, der := range pair.Certificate {
			if cert, err := x509.ParseCertificate(der); err == nil {
				m.vouching = append(m.vouching, cert)
			}
		}
	}
	if f.CA != "" {
		certs, err := authorities(c.ca)
		if err != nil {
			return nil, fmt.Errorf("%w: %s %w", ErrAuthorities, f.CA, err)
		}
		m.vouching = append(m.vouching, certs...)
		m.Authorities = x509.NewCertPool()
		for _, cert := range certs {
			m.Authorities.AddCert(cert)
			if m.AuthoritiesEnd.IsZero() || cert.NotAfter.Before(m.AuthoritiesEnd) {
				m.AuthoritiesEnd = cert.NotAfter
			}
		}
	}
	return m, nil
}

var errCutOff = errors.New("is cut off in the middle of a certificate")

// authorities reads certificates. One that this program cannot read is left out, as the
// bundles of systems have such; a file that ends within one is still being written.
func authorities(text []byte) (certs []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			certs = append(certs, cert)
		}
	}
	switch {
	case bytes.Contains(text, []byte("-----BEGIN")):
		return nil, errCutOff
	case len(certs) == 0:
		return nil, errors.New("has no certificate in PEM form")
	}
	return certs, nil
}
