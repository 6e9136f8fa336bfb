package jobrouter

import (
	"crypto/tls"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Numbers of a gRPC server with thousands of calls that wait.
const (
	// MaxMessageBytes bounds a question [bytes]. GitLab takes 32 KiB, and is to say so
	// itself: beyond this bound a runner would be told ResourceExhausted.
	MaxMessageBytes = 256 << 10
	// writeBufferBytes is what a connection writes at once [bytes]; it has such a buffer
	// only while it does. Reading is unbuffered: a question is one small frame, and a
	// buffer of grpc-go's default 32 KiB would be most of what a waiting call costs.
	writeBufferBytes = 4 << 10
	// runnerPings is how often a runner may ping: it does so every 55 s, without calls
	// too. grpc-go's default would cut it off for that.
	runnerPings = 20 * time.Second
)

// ServerOptions are what a gRPC server needs that serves runners; with TLS if tls isn't
// nil. They come after the server's own, which bound streams, headers and connections.
func ServerOptions(tls *tls.Config) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(tunnelCredentials(tls)),
		grpc.ReadBufferSize(0),
		grpc.WriteBufferSize(writeBufferBytes),
		// Runners repeat their headers rarely; remembered, they would lie around meanwhile.
		grpc.HeaderTableSize(0),
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: runnerPings, PermitWithoutStream: true}),
	}
}

// tunnelCredentials are TLS for all connections but those from a tunnel, which are
// inside of the HTTP server's TLS.
func tunnelCredentials(c *tls.Config) credentials.TransportCredentials {
	if c == nil {
		return insecure.NewCredentials()
	}
	return &mixedCredentials{credentials.NewTLS(c)}
}

type mixedCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (m *mixedCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if _, ok := conn.(*tunnelConn); ok {
		return insecure.NewCredentials().ServerHandshake(conn)
	}
	return m.TransportCredentials.ServerHandshake(conn)
}

// Clone implements credentials.TransportCredentials.
func (m *mixedCredentials) Clone() credentials.TransportCredentials {
	return &mixedCredentials{m.TransportCredentials.Clone()}
}
