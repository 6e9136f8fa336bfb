package redisd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/child"
	"github.com/spillway-ci/spillway/internal/freeport"
)

// ErrNotInstalled is a redis-server that is not there.
var ErrNotInstalled = errors.New("redis-server is not installed")

const (
	// startTimeout is how long a server may take until it answers.
	startTimeout = 10 * time.Second
	// startAttempts is how often another port is tried: a free one may be taken by
	// somebody else before the server has it.
	startAttempts = 5
	pollEvery     = 10 * time.Millisecond
)

// Server is a redis-server of our own, with stock settings but without a disk.
type Server struct {
	Addr string // HOST:PORT on the loopback interface

	cmd  *exec.Cmd
	dir  string
	done chan struct{}
}

// Start starts a server and waits until it answers.
func Start(ctx context.Context) (*Server, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNotInstalled
	}
	for range startAttempts {
		s, err := launch(path)
		if err != nil {
			return nil, err
		}
		if s.answers(ctx) {
			return s, nil
		}
		s.Stop()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return nil, fmt.Errorf("redis-server did not answer within %s", startTimeout)
}

func launch(path string) (*Server, error) {
	port, err := freeport.Find(nil)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "spillway-bench-redis-")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir, done: make(chan struct{})}
	s.cmd = exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	child.DieWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting redis-server: %w", err), os.RemoveAll(dir))
	}
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait() // it is killed in the end, which is no news
	}()
	return s, nil
}

// answers waits for the first answer; false when the server ended or took too long.
func (s *Server) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if pipe, err := Dial(s.Addr); err == nil {
			reply, err := pipe.Ask("PING")
			_ = pipe.Close()
			if err == nil && reply == "PONG" {
				return true
			}
		}
		select {
		case <-time.After(pollEvery):
		case <-s.done:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// Stop kills the server and leaves nothing of it.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill()
	<-s.done
	_ = os.RemoveAll(s.dir)
}

// UsedMemory is what the server holds now [bytes].
func UsedMemory(p *Pipe) (int64, error) {
	text, err := p.Ask("INFO", "memory")
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(text, "\r\n") {
		if n, ok := strings.CutPrefix(line, "used_memory:"); ok {
			return strconv.ParseInt(n, 10, 64)
		}
	}
	return 0, errors.New("redis: INFO memory has no used_memory")
}

// ResetCommands makes the server count its commands from now on.
func ResetCommands(p *Pipe) error {
	_, err := p.Ask("CONFIG", "RESETSTAT")
	return err
}

// Commands is how many commands the server has carried out since ResetCommands, by
// name, without those that ask for it.
func Commands(p *Pipe) (map[string]int, error) {
	text, err := p.Ask("INFO", "commandstats")
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for line := range strings.SplitSeq(text, "\r\n") {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok || strings.HasPrefix(name, "info") || strings.HasPrefix(name, "config") {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		if out[name], err = strconv.Atoi(calls); err != nil {
			return nil, fmt.Errorf("redis: INFO commandstats: %w", err)
		}
	}
	return out, nil
}
