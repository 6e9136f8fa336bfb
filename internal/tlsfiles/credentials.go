package tlsfiles

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// Credentials are for a gRPC client that connects again and again: config is asked at
// each handshake, such as Source.Client or Source.Peer. serverName is whom the server's
// certificate must be for; empty: the address that is dialed.
func Credentials(config func(serverName string) *tls.Config, serverName string) credentials.TransportCredentials {
	return &clientCredentials{credentials.NewTLS(&tls.Config{ServerName: serverName, MinVersion: tls.VersionTLS12}), config, serverName}
}

type clientCredentials struct {
	credentials.TransportCredentials // of what does not depend on the files
	config                           func(string) *tls.Config
	serverName                       string
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *clientCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.config(c.serverName)).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (c *clientCredentials) Clone() credentials.TransportCredentials {
	return &clientCredentials{c.TransportCredentials.Clone(), c.config, c.serverName}
}

// ServerCredentials are for a gRPC server with a configuration of Source.Server. grpc's
// own would give each connection a copy of it, for as long as it lasts, and keep what the
// kernel said of its socket when it began.
func ServerCredentials(config *tls.Config) credentials.TransportCredentials {
	own := credentials.NewTLS(config)
	if config.GetConfigForClient == nil {
		return own
	}
	return &serverCredentials{TransportCredentials: own, config: config}
}

type serverCredentials struct {
	credentials.TransportCredentials
	config *tls.Config
	last   atomic.Pointer[shared]
}

// shared is the credentials of all connections that begin with one configuration.
type shared struct {
	of    *tls.Config
	creds credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *serverCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := c.config.GetConfigForClient(nil) // Source's does not look at the client
	if err != nil {
		return nil, nil, err
	}
	l := c.last.Load()
	if l == nil || l.of != config {
		l = &shared{config, credentials.NewTLS(config)}
		c.last.Store(l)
	}
	secured, info, err := l.creds.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	return socketless{secured}, info, nil
}

// socketless is a connection whose socket grpc does not look at: it would ask the kernel
// for all that channelz can tell of it, which nobody reads here.
type socketless struct{ net.Conn }

// Clone implements credentials.TransportCredentials.
func (c *serverCredentials) Clone() credentials.TransportCredentials {
	return &serverCredentials{TransportCredentials: c.TransportCredentials.Clone(), config: c.config}
}
