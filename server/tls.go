package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
)

// Certificates are the TLS files of one control plane. What is renewed on disk is used
// by new connections; those that exist go on with what they have.
type Certificates struct {
	log     *slog.Logger
	metrics *Metrics

	mu struct {
		sync.Mutex
		opened map[string]*tlsfiles.Source // by setting
	}
}

// NewCertificates makes a set without any; log and metrics are told of renewals.
func NewCertificates(log *slog.Logger, metrics *Metrics) *Certificates {
	c := &Certificates{log: log, metrics: metrics}
	c.mu.opened = map[string]*tlsfiles.Source{}
	return c
}

// Open reads the files of a setting, such as listen.tls, once however often it is asked.
func (c *Certificates) Open(setting string, files config.TLS) (*tlsfiles.Source, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.mu.opened[setting]; s != nil {
		return s, nil
	}
	s, err := tlsfiles.Open(TLSFiles(files), tlsfiles.Options{
		Replaced: func(m *tlsfiles.Material) {
			c.metrics.TLSReloaded(setting, true)
			c.log.Info("certificates were replaced; new connections use the new ones", "setting", setting, "expires", m.NotAfter())
		},
		Kept: func(err error) {
			c.metrics.TLSReloaded(setting, false)
			c.log.Warn("certificates on disk are of no use; the ones before stay in use", "setting", setting, "error", err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	if end := s.Current().NotAfter(); !end.IsZero() && time.Now().After(end) {
		c.log.Error("the certificate has expired: nobody will accept it until it is replaced", "setting", setting, "expired", end)
	}
	c.metrics.AddTLS(setting, s)
	c.mu.opened[setting] = s
	return s, nil
}

// TLSFiles are the files that a setting names.
func TLSFiles(t config.TLS) tlsfiles.Files {
	return tlsfiles.Files{Cert: t.CertFile, Key: t.KeyFile, CA: t.CAFile}
}

// Listener is the TLS of a listener with listen.tls, nil when that is off. With a CA file
// a client's certificate is verified, unless clients is AnyClient: probes and Prometheus
// usually have none, and what they read is no secret.
func (c *Certificates) Listener(files config.TLS, clients tlsfiles.Clients) (*tls.Config, error) {
	if !files.Enabled() {
		return nil, nil //nolint:nilnil // nil is how net/http and grpc say "no TLS" too
	}
	s, err := c.Open("listen.tls", files)
	if err != nil {
		return nil, err
	}
	return s.Server(clients), nil
}

// Run looks at the files now and then, so that what is wrong with them is known before
// somebody connects.
func (c *Certificates) Run(ctx context.Context) {
	look := time.NewTicker(tlsfiles.DefaultEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			c.mu.Lock()
			opened := make([]*tlsfiles.Source, 0, len(c.mu.opened))
			for _, s := range c.mu.opened {
				opened = append(opened, s)
			}
			c.mu.Unlock()
			for _, s := range opened {
				s.Check()
			}
		}
	}
}

// ClientTLS reads the files of a client, once: whom to trust (the system's authorities
// without a CA file) and, if it has one, its own certificate. serverName is what the
// server's certificate must be for; empty means the address.
func ClientTLS(files config.TLS, serverName string) (*tls.Config, error) {
	s, err := tlsfiles.Open(TLSFiles(files), tlsfiles.Options{})
	if err != nil {
		return nil, err
	}
	return s.Client(serverName), nil
}
