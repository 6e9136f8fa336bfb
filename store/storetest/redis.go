package storetest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-ci/spillway/internal/peertest"
)

const (
	// startTimeout is how long a server may take until it answers.
	startTimeout = 80 * time.Second
	// startAttempts is how often another port is tried: a free one may be taken by
	// somebody else before the server has it.
	startAttempts = 5
	// pollEvery is between two looks at a server that is starting.
	pollEvery    = 10 * time.Millisecond
	clusterNodes = 3
	clusterSlots = 16384
)

// StartRedis starts a redis-server of its own for a test, on a free loopback port,
// and stops it when the test ends. It stores nothing on disk. Without a redis-server,
// the test is skipped; in CI it fails.
func StartRedis(tb testing.TB, args ...string) (addr string) {
	tb.Helper()
	return StartServer(tb, args...).Addr
}

// Server is a redis-server of a test.
type Server struct {
	Addr string
	path string
	args []string

	cmd    *exec.Cmd
	exited chan struct{}
}

// StartServer is StartRedis for tests that stop the server themselves.
func StartServer(tb testing.TB, args ...string) *Server {
	tb.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal("redis-server is not installed, and CI must run these tests")
		}
		tb.Skip("SKIPPED: redis-server is not installed; install it, or run these tests in CI")
	}
	for range startAttempts {
		port := strconv.Itoa(peertest.FreePort(tb))
		s := &Server{Addr: net.JoinHostPort("127.0.0.1", port), path: path, args: append(slices.Clone(args),
			"--port", port, "--bind", "127.0.0.1", "--dir", tb.TempDir(),
			"--save", "", "--appendonly", "no", "--daemonize", "no",
		)}
		if s.start(tb) {
			return s
		}
	}
	tb.Fatalf("redis-server did not answer within %s", startTimeout)
	return nil
}

// Start starts the server again after Stop, empty and at the same address.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	if !s.start(tb) {
		tb.Fatalf("redis-server did not answer again at %s within %s", s.Addr, startTimeout)
	}
}

func (s *Server) start(tb testing.TB) bool {
	tb.Helper()
	s.cmd, s.exited = exec.Command(s.path, s.args...), make(chan struct{})
	if err := s.cmd.Start(); err != nil {
		tb.Fatalf("starting redis-server: %v", err)
	}
	cmd, exited := s.cmd, s.exited
	go func() {
		_ = cmd.Wait() // how it ended does not matter
		close(exited)
	}()
	tb.Cleanup(s.Stop)
	if s.waitUntilUp() {
		return true
	}
	s.Stop()
	return false
}

// Stop kills the server and waits until it is gone. It may be called again.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill() // it may be gone already
	<-s.exited
}

// Signal sends a signal to the server, such as SIGSTOP.
func (s *Server) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

func (s *Server) waitUntilUp() bool {
	timeout := time.After(startTimeout)
	for {
		// A server that wants a password is up, too.
		reply, err := Command(s.Addr, "PING")
		if reply == "PONG" || (err != nil && strings.Contains(err.Error(), "NOAUTH")) {
			return true
		}
		select {
		case <-s.exited:
			return false
		case <-timeout:
			return false
		case <-time.After(pollEvery):
		}
	}
}

// StartSentinel starts a master and one Sentinel that watches it, with more lines of
// configuration, and returns the Sentinel's address.
func StartSentinel(tb testing.TB, master string, lines ...string) (addr string) {
	tb.Helper()
	host, port, _ := net.SplitHostPort(StartRedis(tb))
	config := filepath.Join(tb.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %s %s %s 1\n%s\n", master, host, port, strings.Join(lines, "\n"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatalf("writing the Sentinel's configuration: %v", err)
	}
	return StartRedis(tb, config, "--sentinel")
}

// StartCluster starts a Cluster of three masters without replicas.
func StartCluster(tb testing.TB) (addrs []string) {
	tb.Helper()
	for range clusterNodes {
		addrs = append(addrs, StartRedis(tb, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(peertest.FreePort(tb)),
			"--cluster-node-timeout", "60000")) // a node of a busy machine is not gone
	}
	must := func(addr string, args ...string) {
		tb.Helper()
		if _, err := Command(addr, args...); err != nil {
			tb.Fatalf("%s on %s: %v", strings.Join(args, " "), addr, err)
		}
	}
	for i, addr := range addrs {
		from, to := i*clusterSlots/clusterNodes, (i+1)*clusterSlots/clusterNodes-1
		must(addr, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		must(addr, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to))
	}
	for _, addr := range addrs[1:] {
		host, port, _ := net.SplitHostPort(addr)
		bus, err := Command(addr, "CONFIG", "GET", "cluster-port")
		if err != nil {
			tb.Fatalf("asking %s for its bus: %v", addr, err)
		}
		must(addrs[0], "CLUSTER", "MEET", host, port, bus)
	}
	timeout := time.After(startTimeout)
	for !clusterReady(addrs) {
		select {
		case <-timeout:
			tb.Fatalf("the cluster is not ready after %s", startTimeout)
		case <-time.After(pollEvery):
		}
	}
	return addrs
}

func clusterReady(addrs []string) bool {
	for _, addr := range addrs {
		info, err := Command(addr, "CLUSTER", "INFO")
		if err != nil || !strings.Contains(info, "cluster_state:ok") ||
			!strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(clusterNodes)) {
			return false
		}
	}
	return true
}

// Command sends one command to a server and returns its answer; of an array, the
// last element.
func Command(addr string, args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(conn))
}

func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '+', ':':
		return text, nil
	case '-':
		return "", fmt.Errorf("redis: %s", text)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return "", err
	}
	if kind == '*' {
		last := ""
		for range n {
			if last, err = readReply(r); err != nil {
				return "", err
			}
		}
		return last, nil
	}
	body := make([]byte, n+2)
	if _, err := io.ReadFull(r, body); err != nil {
		return "", err
	}
	return string(body[:n]), nil
}
