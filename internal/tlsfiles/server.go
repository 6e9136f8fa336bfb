package tlsfiles

import (
	"crypto/tls"
	"sync/atomic"
)

// Clients is what a listener wants of those who connect.
type Clients int

// What a listener may want. A certificate of an unknown authority, or one that has
// expired, ends the handshake wherever certificates are asked for.
const (
	// AnyClient asks for no certificate.
	AnyClient Clients = iota
	// NamedClient asks for one and also lets those in who have none: whoever serves
	// them can say in a sentence what is missing, which TLS cannot.
	NamedClient
)

// Server is the configuration of a listener. Without a CA file no client is asked for a
// certificate.
func (s *Source) Server(clients Clients) *tls.Config {
	// Connections share one configuration for as long as the material is in use: with one
	// each, thousands of idle streams would keep thousands.
	type made struct {
		of     *Material
		config *tls.Config
	}
	var last atomic.Pointer[made]
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			m := s.Check()
			if l := last.Load(); l != nil && l.of == m {
				return l.config, nil
			}
			l := &made{m, m.server(clients)}
			last.Store(l)
			return l.config, nil
		},
	}
}

func (m *Material) server(clients Clients) *tls.Config {
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{*m.Certificate},
		// A resumed session would skip the proof by certificate, also after its authority
		// has left our files. Connections are few and long: a full handshake costs nothing.
		SessionTicketsDisabled: true,
	}
	if clients == NamedClient && m.Authorities != nil {
		c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, m.Authorities
	}
	return c
}
