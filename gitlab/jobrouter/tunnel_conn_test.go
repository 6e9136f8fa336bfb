package jobrouter

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// serveTunnel returns a tunnel, and where its server is: host:port.
func serveTunnel(t *testing.T) (tunnel *Tunnel, address string) {
	t.Helper()
	tunnel = NewTunnel(testTokens())
	server := httptest.NewServer(tunnel)
	t.Cleanup(server.Close)
	return tunnel, server.Listener.Addr().String()
}

// openTunnel returns both ends of one.
func openTunnel(t *testing.T) (ours net.Conn, theirs *websocket.Conn) {
	t.Helper()
	tunnel, address := serveTunnel(t)
	theirs, _, err := dialTunnel(t.Context(), "http://"+address, testToken, nil, tunnelProtocol)
	require.NoError(t, err)
	t.Cleanup(func() { _ = theirs.CloseNow() })
	return accept(t, tunnel), theirs
}

func accept(t *testing.T, tunnel *Tunnel) net.Conn {
	t.Helper()
	conn, err := tunnel.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestATunnelCarriesBytesHoweverTheyArePacked(t *testing.T) {
	ours, theirs := openTunnel(t)
	all := bytes.Repeat([]byte("0123456789"), 1_000)
	go func() {
		for _, n := range []int{0, 1, tunnelBufferBytes - 10, tunnelBufferBytes, tunnelBufferBytes + 1, 5_000} { // an empty one too
			_ = theirs.Write(t.Context(), websocket.MessageBinary, all[:n])
		}
	}()
	var want []byte
	for _, n := range []int{1, tunnelBufferBytes - 10, tunnelBufferBytes, tunnelBufferBytes + 1, 5_000} {
		want = append(want, all[:n]...)
	}
	got := make([]byte, len(want))
	_, err := io.ReadFull(ours, got)
	require.NoError(t, err)
	require.Equal(t, want, got)

	n, err := ours.Write(all)
	require.NoError(t, err)
	require.Len(t, all, n)
	kind, got, err := theirs.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, websocket.MessageBinary, kind)
	require.Equal(t, all, got)

	require.Contains(t, ours.RemoteAddr().String(), "127.0.0.1")
	require.Contains(t, ours.LocalAddr().String(), "127.0.0.1")
}

// A client that doesn't wait for our answer has its first bytes in the HTTP server's
// buffer already.
func TestATunnelHasTheBytesThatCameBeforeItsAnswer(t *testing.T) {
	tunnel, address := serveTunnel(t)
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	early := strings.Repeat("early", 400)                                                                    // more than a tunnel's buffer
	frame := append([]byte{0x82, 0x80 | 126, byte(len(early) >> 8), byte(len(early)), 0, 0, 0, 0}, early...) // masked with zeros
	_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: %s\r\n\r\n%s", address, testToken, tunnelProtocol, frame)
	require.NoError(t, err)
	got := make([]byte, len(early))
	_, err = io.ReadFull(accept(t, tunnel), got)
	require.NoError(t, err)
	require.Equal(t, early, string(got))
}

func TestATunnelKeepsSmallBuffers(t *testing.T) {
	sizes := make(chan [2]int, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := &hijack{ResponseWriter: w}
		conn, buffers, err := h.Hijack()
		if err == nil {
			_ = conn.Close()
			sizes <- [2]int{buffers.Reader.Size(), buffers.Writer.Size()}
		}
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	_, err = bufio.NewReader(conn).ReadByte()
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, [2]int{tunnelBufferBytes, tunnelBufferBytes}, <-sizes)
}

func TestATunnelEndsAsTheOtherEndCloses(t *testing.T) {
	ours, theirs := openTunnel(t)
	go func() { _ = theirs.Close(websocket.StatusNormalClosure, "") }()
	_, err := ours.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)

	ours, theirs = openTunnel(t)
	_ = theirs.CloseNow()
	_, err = ours.Read(make([]byte, 1))
	require.Error(t, err)
}

func TestATunnelTakesNoText(t *testing.T) {
	ours, theirs := openTunnel(t)
	require.NoError(t, theirs.Write(t.Context(), websocket.MessageText, []byte("text")))
	go func() { _, _ = ours.Read(make([]byte, 1)) }() // it fails
	_, _, err := theirs.Read(t.Context())
	require.Equal(t, websocket.StatusUnsupportedData, websocket.CloseStatus(err), "%v", err)
}

func TestATunnelsDeadlineClosesIt(t *testing.T) {
	ours, theirs := openTunnel(t)
	require.NoError(t, ours.SetDeadline(time.Now().Add(-time.Second)))
	_, err := ours.Read(make([]byte, 1))
	require.Error(t, err)
	_, _, err = theirs.Read(t.Context())
	require.Error(t, err)
	_, err = ours.Write([]byte("x"))
	require.Error(t, err)
}

func TestATunnelWithoutADeadlineAnyMoreStays(t *testing.T) {
	ours, theirs := openTunnel(t)
	require.NoError(t, ours.SetReadDeadline(time.Now().Add(time.Hour)))
	require.NoError(t, ours.SetWriteDeadline(time.Time{}))
	conn, ok := ours.(*tunnelConn)
	require.True(t, ok)
	require.Nil(t, conn.deadline.timer)
	require.NoError(t, theirs.Write(t.Context(), websocket.MessageBinary, []byte("x")))
	_, err := ours.Read(make([]byte, 1))
	require.NoError(t, err)
}

func TestWhoReadsFromATunnelIsInterruptedByItsEnd(t *testing.T) {
	ours, _ := openTunnel(t)
	ended := make(chan error, 1)
	go func() {
		_, err := ours.Read(make([]byte, 1))
		ended <- err
	}()
	require.NoError(t, ours.Close())
	require.Error(t, <-ended)
}
