package tlsfiles

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultEvery is how often the files are read again, at most. Smaller spends reads on
// a flood of connections; larger is how long a new connection may still get what was
// replaced.
const DefaultEvery = 2 * time.Second

// attempts is how often files that do not fit are read at once [reads]: a swap of a
// folder's link between two of them is over at the second.
const attempts = 3

// Options are what a Source does besides holding material.
type Options struct {
	Every time.Duration // 0: DefaultEvery
	// Replaced is told of new material that is in use from now on.
	Replaced func(*Material)
	// Kept is told, once for each reason, why the files' new contents are not used.
	Kept func(error)
}

// Source is the files' newest usable material. It is safe for concurrent use and has no
// goroutine: files are looked at when a connection is made, or by Check.
type Source struct {
	files   Files
	opt     Options
	current atomic.Pointer[Material]

	mu struct {
		sync.Mutex
		checked time.Time
		used    [sha256.Size]byte // the contents in use
		told    string            // the reason that Kept was told last; empty: none
	}
}

// Open reads the files. A certificate that has expired is no error: whoever renews it
// may be late, and is waited for.
func Open(files Files, opt Options) (*Source, error) {
	if opt.Every == 0 {
		opt.Every = DefaultEvery
	}
	s := &Source{files: files, opt: opt}
	c, m, err := s.load()
	if err != nil {
		return nil, err
	}
	s.current.Store(m)
	s.mu.checked, s.mu.used = time.Now(), c.sum()
	return s, nil
}

// load reads files that belong together.
func (s *Source) load() (c contents, m *Material, err error) {
	for range attempts {
		if c, err = read(s.files); err != nil {
			continue
		}
		if m, err = c.material(s.files); err == nil {
			return c, m, nil
		}
	}
	return c, nil, err
}

// Files are what the source reads.
func (s *Source) Files() Files { return s.files }

// Current is the material in use, without looking at the files.
func (s *Source) Current() *Material { return s.current.Load() }

// Check looks at the files, unless that was done a moment ago or is being done, and
// returns the material in use. A file system that hangs holds up one caller only.
func (s *Source) Check() *Material {
	if s.mu.TryLock() {
		if now := time.Now(); now.Sub(s.mu.checked) >= s.opt.Every {
			s.renew(now)
			s.mu.checked = time.Now()
		}
		s.mu.Unlock()
	}
	return s.current.Load()
}

// renew takes up what the files hold, if that is usable. The caller holds mu.
func (s *Source) renew(now time.Time) {
	c, m, err := s.load()
	if err == nil && c.sum() == s.mu.used {
		s.mu.told = ""
		return
	}
	if err == nil {
		err = s.better(m, now)
	}
	if err != nil {
		if s.mu.told != err.Error() && s.opt.Kept != nil {
			s.opt.Kept(err)
		}
		s.mu.told = err.Error()
		return
	}
	s.mu.told, s.mu.used = "", c.sum()
	s.current.Store(m)
	if s.opt.Replaced != nil {
		s.opt.Replaced(m)
	}
}

// better refuses material that would end what works: where both are of no use now,
// the newer one is taken.
func (s *Source) better(m *Material, now time.Time) error {
	if err := m.valid(now); err != nil && s.Current().valid(now) == nil {
		return fmt.Errorf("%s: %w", s.files.Cert, err)
	}
	return nil
}

// Client is the configuration of one connection that begins now. serverName is whom the
// server's certificate must be for.
func (s *Source) Client(serverName string) *tls.Config { return s.Check().client(serverName) }

func (m *Material) client(serverName string) *tls.Config {
	c := &tls.Config{ServerName: serverName, RootCAs: m.Authorities, MinVersion: tls.VersionTLS12}
	if m.Certificate != nil {
		// Presented whichever authorities the server says that it knows: one that does not
		// know ours then says so, instead of that we had none.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return m.Certificate, nil }
	}
	return c
}

// Peer is Client for another server with a certificate as ours: of an authority of the
// system, or of one whose certificate is in our own files.
func (s *Source) Peer(serverName string) *tls.Config {
	m := s.Check()
	c := m.client(serverName)
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // a machine without any: ours are enough
	}
	for _, cert := range m.vouching {
		roots.AddCert(cert)
	}
	c.RootCAs = roots
	return c
}
