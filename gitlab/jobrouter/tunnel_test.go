package jobrouter

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

func TestDiscovery(t *testing.T) {
	draining := false
	d, err := NewDiscovery("grpcs://router.example.com:443", testTokens(), func() bool { return draining })
	require.NoError(t, err)
	ask := func(method, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, DiscoveryPath, nil)
		if token != "" {
			r.Header.Set("Runner-Token", token)
		}
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		return w
	}
	w := ask("GET", testToken)
	require.Equal(t, 200, w.Code)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.JSONEq(t, `{"server_url":"grpcs://router.example.com:443"}`, w.Body.String())
	require.Equal(t, 403, ask("GET", "").Code)
	require.Equal(t, 403, ask("GET", "  ").Code)
	require.Equal(t, 501, ask("GET", "glrt-unknown").Code)
	require.Equal(t, 501, ask("POST", testToken).Code)
	draining = true
	require.Equal(t, 503, ask("GET", testToken).Code, "another replica may answer")
	require.Equal(t, 501, ask("GET", "glrt-unknown").Code)

	for _, bad := range []string{"", "router:443", "https://router", "grpc://", "grpc:router"} {
		_, err := NewDiscovery(bad, testTokens(), nil)
		require.Error(t, err, bad)
	}
}

func TestWhoGetsNoTunnel(t *testing.T) {
	s := serve(t)
	url := strings.Replace(s.urls["ws"], "ws", "http", 1)
	dial := func(token string, protocols ...string) (*websocket.Conn, int) {
		ws, code, err := dialTunnel(t.Context(), url, token, nil, protocols...)
		if err == nil {
			t.Cleanup(func() { _ = ws.CloseNow() })
		}
		return ws, code
	}
	_, code := dial("glrt-unknown", "ws-tunnel")
	require.Equal(t, http.StatusForbidden, code)
	_, code = dial(testToken)
	require.Equal(t, http.StatusBadRequest, code)
	_, code = dial(testToken, "other")
	require.Equal(t, http.StatusBadRequest, code)
	ws, code := dial(testToken, "other", "ws-tunnel")
	require.Equal(t, http.StatusSwitchingProtocols, code)
	require.Equal(t, "ws-tunnel", ws.Subprotocol(), "a runner breaks off without it")
}

func TestATunnelBreaksAtAMessageThatIsTooLarge(t *testing.T) {
	s := serve(t)
	ws, _, err := dialTunnel(t.Context(), s.urls["ws"], testToken, nil, "ws-tunnel")
	require.NoError(t, err)
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(-1)
	// An HTTP/2 client preface, then a frame type that is ignored, 16 KiB at a time, all
	// in one message.
	message := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0)
	frame := append([]byte{0, 0x40, 0, 0x20, 0, 0, 0, 0, 0}, make([]byte, 16<<10)...)
	for len(message) <= maxTunnelMessage {
		message = append(message, frame...)
	}
	_ = ws.Write(t.Context(), websocket.MessageBinary, message) // it may break under way
	for err == nil {
		_, _, err = ws.Read(t.Context())
	}
	require.Equal(t, websocket.StatusMessageTooBig, websocket.CloseStatus(err), "%v", err)
}

func TestNoTunnelIsOpenedAfterItsEnd(t *testing.T) {
	tunnel := NewTunnel(testTokens())
	require.NoError(t, tunnel.Close())
	require.NoError(t, tunnel.Close())
	_, err := tunnel.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	server := httptest.NewServer(tunnel)
	defer server.Close()
	ws, _, err := dialTunnel(t.Context(), server.URL, testToken, nil, "ws-tunnel")
	require.NoError(t, err)
	_, _, err = ws.Read(t.Context())
	require.Error(t, err, "it is closed at once")
	require.Equal(t, "tunnel", tunnel.Addr().String())
	require.Equal(t, "websocket", tunnel.Addr().Network())
}
