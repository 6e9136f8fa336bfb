package jobrouter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// tunnelBufferBytes is what a tunnel may keep for reading, and for writing [bytes]. An
// HTTP server's buffers of 4 KiB each would be a fifth of what a call costs that waits in
// a tunnel; what is larger than a buffer passes it by.
const tunnelBufferBytes = 256

// hijack hands a connection over with small buffers.
type hijack struct {
	http.ResponseWriter

	conn net.Conn // once it is handed over
}

// Hijack implements http.Hijacker.
func (h *hijack) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, large, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn = conn
	early := large.Reader.Buffered() // bytes that came before we have answered
	in := bufio.NewReaderSize(io.LimitReader(large.Reader, int64(early)), max(tunnelBufferBytes, early))
	if _, err := in.Peek(early); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	// Whoever takes it over reads what is buffered in it, and then from the connection.
	return conn, bufio.NewReadWriter(in, bufio.NewWriterSize(conn, tunnelBufferBytes)), nil
}

// tunnelConn is a connection in a WebSocket. TLS, if there is any, is around it. Unlike
// websocket.NetConn it has no timers and contexts unless there is a deadline, as thousands
// of them wait here.
type tunnelConn struct {
	ws    *websocket.Conn
	outer net.Conn

	reading sync.Mutex
	message io.Reader // that is being read; nil = none

	deadline struct {
		sync.Mutex
		timer *time.Timer // nil = none
	}
}

func newTunnelConn(ws *websocket.Conn, outer net.Conn) *tunnelConn {
	return &tunnelConn{ws: ws, outer: outer}
}

// Read implements net.Conn.
func (c *tunnelConn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for {
		if c.message == nil {
			if err := c.next(); err != nil {
				return 0, err
			}
		}
		n, err := c.message.Read(p)
		if errors.Is(err, io.EOF) {
			c.message, err = nil, nil
		}
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// next begins with the next message. A tunnel that the other end closes in order is the
// end of the connection in it. The request's context would be no use: it ends when the
// tunnel has been opened.
func (c *tunnelConn) next() error {
	kind, message, err := c.ws.Reader(context.Background())
	if err != nil {
		if code := websocket.CloseStatus(err); code == websocket.StatusNormalClosure || code == websocket.StatusGoingAway {
			return io.EOF
		}
		return err
	}
	if kind != websocket.MessageBinary {
		err := fmt.Errorf("a tunnel's messages are binary, this one is %s", kind)
		_ = c.ws.Close(websocket.StatusUnsupportedData, err.Error()) // it ends here anyway
		return err
	}
	c.message = message
	return nil
}

// Write implements net.Conn: one message.
func (c *tunnelConn) Write(p []byte) (int, error) {
	if err := c.ws.Write(context.Background(), websocket.MessageBinary, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close implements net.Conn. It waits for nobody: whoever reads or writes is interrupted.
func (c *tunnelConn) Close() error {
	_ = c.SetDeadline(time.Time{}) // always nil
	return c.ws.CloseNow()
}

// SetDeadline implements net.Conn: the connection is closed then.
func (c *tunnelConn) SetDeadline(t time.Time) error {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	if c.deadline.timer != nil {
		c.deadline.timer.Stop()
		c.deadline.timer = nil
	}
	if !t.IsZero() {
		c.deadline.timer = time.AfterFunc(time.Until(t), func() { _ = c.ws.CloseNow() })
	}
	return nil
}

// SetReadDeadline implements net.Conn; it is SetDeadline.
func (c *tunnelConn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline implements net.Conn; it is SetDeadline.
func (c *tunnelConn) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }

// LocalAddr implements net.Conn.
func (c *tunnelConn) LocalAddr() net.Addr { return c.outer.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *tunnelConn) RemoteAddr() net.Addr { return c.outer.RemoteAddr() }
