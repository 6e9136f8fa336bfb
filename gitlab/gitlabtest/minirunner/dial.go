package minirunner

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Of the tunnel through a WebSocket: each binary message is a piece of the HTTP/2
// connection.
const (
	tunnelProtocol   = "ws-tunnel"
	maxTunnelMessage = 10 << 20         // bytes
	pingEvery        = 55 * time.Second // also without a call
)

// conns keeps the connection to the router: one, until its URL changes.
type conns struct {
	o   Options
	tls *tls.Config
	mu  struct {
		sync.Mutex
		url  string
		conn *grpc.ClientConn
	}
}

func (c *conns) to(server string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.conn != nil && c.mu.url == server {
		return c.mu.conn, nil
	}
	conn, err := c.dial(server)
	if err != nil {
		return nil, err
	}
	if c.mu.conn != nil {
		_ = c.mu.conn.Close()
	}
	c.mu.url, c.mu.conn = server, conn
	return conn, nil
}

func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.conn != nil {
		_ = c.mu.conn.Close()
		c.mu.conn = nil
	}
}

func (c *conns) dial(server string) (*grpc.ClientConn, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	opts := []grpc.DialOption{
		grpc.WithUserAgent(c.o.userAgent()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, PermitWithoutStream: true}),
		grpc.WithPerRPCCredentials(bearer(c.o.Token)),
	}
	const roundRobin = `{"loadBalancingConfig":[{"round_robin":{}}]}`
	switch u.Scheme {
	case "grpc":
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(roundRobin))
		return grpc.NewClient("dns:"+withPort(u, "80"), opts...)
	case "grpcs":
		opts = append(opts, grpc.WithTransportCredentials(credentials.NewTLS(c.tls)), grpc.WithDefaultServiceConfig(roundRobin))
		return grpc.NewClient("dns:"+withPort(u, "443"), opts...)
	case "ws", "wss":
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(c.tunnel))
		return grpc.NewClient("passthrough:"+server, opts...)
	default:
		return nil, fmt.Errorf("scheme %q is none of a job router", u.Scheme)
	}
}

func withPort(u *url.URL, port string) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// tunnel opens a WebSocket and makes a connection of it.
func (c *conns) tunnel(ctx context.Context, server string) (net.Conn, error) {
	ws, _, err := websocket.Dial(ctx, server, &websocket.DialOptions{ //nolint:bodyclose // nothing is to be read of it
		HTTPClient:   &http.Client{Transport: &http.Transport{TLSClientConfig: c.tls}},
		HTTPHeader:   http.Header{"Authorization": {"Bearer " + c.o.Token}, "User-Agent": {c.o.userAgent()}},
		Subprotocols: []string{tunnelProtocol},
	})
	if err != nil {
		return nil, err
	}
	if ws.Subprotocol() != tunnelProtocol {
		_ = ws.Close(websocket.StatusPolicyViolation, "")
		return nil, errors.New("the server does not speak " + tunnelProtocol)
	}
	ws.SetReadLimit(maxTunnelMessage)
	return websocket.NetConn(context.Background(), ws, websocket.MessageBinary), nil
}

// bearer is the runner token with each call. It goes over plaintext too: GitLab
// Runner lets it where the router's URL is grpc or ws.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b), "gitlab-agent-type": "runner"}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }
