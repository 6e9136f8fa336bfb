package redisd_test

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/bench/redisd"
)

func start(t *testing.T) (*redisd.Server, *redisd.Pipe) {
	t.Helper()
	s, err := redisd.Start(t.Context())
	if errors.Is(err, redisd.ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Skip("SKIPPED:", err)
	}
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	p, err := redisd.Dial(s.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return s, p
}

func TestPipe(t *testing.T) {
	_, p := start(t)
	p.Queue("SADD", "s", "1", "2", "3")
	p.Queue("SADD", "s", "3", "4")
	p.Queue("SET", "text", "hello")
	p.Queue("GET", "absent")
	p.Queue("EVAL", "return {1, {20, 300}}", "0")
	p.Queue("DECRBY", "n", "1000")
	sum, err := p.Flush()
	require.NoError(t, err)
	require.EqualValues(t, 3+1+321-1000, sum)

	text, err := p.Ask("GET", "text")
	require.NoError(t, err)
	require.Equal(t, "hello", text)
	_, err = p.Ask("NOSUCH")
	require.ErrorContains(t, err, "unknown command")
}

func TestCommandsAreCountedExactly(t *testing.T) {
	_, p := start(t)
	require.NoError(t, redisd.ResetCommands(p))
	for range 7 {
		p.Queue("SADD", "s", "1")
	}
	p.Queue("EVAL", "redis.call('SCARD', 's') return 1", "0")
	_, err := p.Flush()
	require.NoError(t, err)
	counted, err := redisd.Commands(p)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"sadd": 7, "eval": 1, "scard": 1}, counted)
	require.NoError(t, redisd.ResetCommands(p))
	counted, err = redisd.Commands(p)
	require.NoError(t, err)
	require.Empty(t, counted)
}

func TestUsedMemoryGrows(t *testing.T) {
	_, p := start(t)
	before, err := redisd.UsedMemory(p)
	require.NoError(t, err)
	_, err = p.Ask("SET", "large", string(make([]byte, 1<<20)))
	require.NoError(t, err)
	after, err := redisd.UsedMemory(p)
	require.NoError(t, err)
	require.Greater(t, after-before, int64(1<<20))
}

func TestStopLeavesNothing(t *testing.T) {
	s, p := start(t)
	s.Stop()
	_, err := p.Ask("PING")
	require.Error(t, err)
	_, err = redisd.Dial(s.Addr)
	require.Error(t, err)
}
