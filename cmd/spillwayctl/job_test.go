package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestForwardsAtTheirEdges(t *testing.T) {
	for text, want := range map[string]forward{"80": {80, 80}, "80:8080": {80, 8080}, "65535:0": {65535, 0}, "1:65535": {1, 65535}} {
		got, err := parseForward(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", ":", "0", "65536", "80:65536", "80:-1", "x", "80:80:80", "80:"} {
		_, err := parseForward(text)
		require.Error(t, err, text)
	}
}

// syncBuffer is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Each connection is a session of its own, and an interrupt is an orderly end.
func TestPortForward(t *testing.T) {
	addr := start(t, &fakeJobs{})
	var out syncBuffer
	a := &app{stdin: &bytes.Buffer{}, stdout: &out, stderr: io.Discard, getenv: only(addrVariable, addr), now: func() time.Time { return noon }}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- a.run(ctx, []string{"job", "port-forward", "1", "80:0"}) }()
	var local string
	require.Eventually(t, func() bool {
		m := regexp.MustCompile(`(\S+) is port 80 of job 1`).FindStringSubmatch(out.String())
		if m != nil {
			local = m[1]
		}
		return m != nil
	}, time.Minute, time.Millisecond)
	for range 3 {
		conn, err := net.Dial("tcp", local)
		require.NoError(t, err)
		_, err = conn.Write([]byte("there and back"))
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		text, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, "there and back", string(text))
		require.NoError(t, conn.Close())
	}
	cancel()
	require.Equal(t, exitOK, <-code)
}
