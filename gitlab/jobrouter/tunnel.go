package jobrouter

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/spillway-ci/spillway/gitlab/route"
)

// Limits of the tunnel.
const (
	// tunnelProtocol is the subprotocol by which both ends know that this is a tunnel.
	tunnelProtocol = "ws-tunnel"
	// maxTunnelMessage bounds one message [bytes]; runners send no larger one.
	maxTunnelMessage = 10 << 20
	// acceptWithin is how long a new tunnel waits for the gRPC server to take it.
	acceptWithin = 10 * time.Second
)

// Tunnel carries gRPC connections in WebSockets, for runners that reach us through
// HTTP only. Each message holds a piece of the connection's bytes. It is an
// http.Handler for the runners, and a net.Listener for the gRPC server.
type Tunnel struct {
	tokens *route.Tokens
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

// NewTunnel returns a tunnel for runners with one of the tokens.
func NewTunnel(tokens *route.Tokens) *Tunnel {
	return &Tunnel{tokens: tokens, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// ServeHTTP opens a tunnel. The token is looked at first; the gRPC calls inside carry it
// again. Inside, a runner names the whole URL as :authority, which means nothing.
func (t *Tunnel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, _, ok := t.tokens.Lookup(bearerToken(r.Header.Get("Authorization"))); !ok {
		http.Error(w, "no pool is served by this runner token", http.StatusForbidden)
		return
	}
	if !offers(r.Header.Values("Sec-WebSocket-Protocol"), tunnelProtocol) {
		http.Error(w, "the WebSocket subprotocol "+tunnelProtocol+" is needed", http.StatusBadRequest)
		return
	}
	raw := &hijack{ResponseWriter: w}
	ws, err := websocket.Accept(raw, r, &websocket.AcceptOptions{Subprotocols: []string{tunnelProtocol}, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // it was answered
	}
	ws.SetReadLimit(maxTunnelMessage)
	conn := newTunnelConn(ws, raw.conn)
	timer := time.NewTimer(acceptWithin)
	defer timer.Stop()
	select {
	case t.conns <- conn:
	case <-t.closed:
		_ = conn.Close()
	case <-timer.C:
		_ = conn.Close()
	}
}

func offers(headers []string, protocol string) bool {
	return slices.ContainsFunc(headers, func(list string) bool {
		return slices.ContainsFunc(strings.Split(list, ","), func(p string) bool { return strings.TrimSpace(p) == protocol })
	})
}

// Accept implements net.Listener.
func (t *Tunnel) Accept() (net.Conn, error) {
	select {
	case conn := <-t.conns:
		return conn, nil
	case <-t.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: no tunnel is opened any more. Those that are open are
// the gRPC server's.
func (t *Tunnel) Close() error {
	t.close.Do(func() { close(t.closed) })
	return nil
}

// Addr implements net.Listener.
func (t *Tunnel) Addr() net.Addr { return tunnelAddr{} }

type tunnelAddr struct{}

func (tunnelAddr) Network() string { return "websocket" }
func (tunnelAddr) String() string  { return "tunnel" }
