package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// output is a buffer that may be read while it is written.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func run(ctx context.Context, out *output, args ...string) error {
	cmd := command()
	cmd.SetArgs(args)
	cmd.SetOut(out)
	return cmd.ExecuteContext(ctx)
}

func TestHelp(t *testing.T) {
	var out output
	require.NoError(t, run(t.Context(), &out, "--help"))
	require.Contains(t, out.String(), "--endpoint-url")
}

func TestServesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults.yaml")
	require.NoError(t, os.WriteFile(path, []byte("groups: {a: {}, b: {}}\n"), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	var out output
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, &out, "--file", path) }()
	require.Eventually(t, func() bool {
		return regexp.MustCompile(`http://127\.0\.0\.1:\d+ serves 2 groups`).MatchString(out.String())
	}, time.Minute, 5*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

func TestRefusesABadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults.yaml")
	require.NoError(t, os.WriteFile(path, []byte("grups: {}\n"), 0o600))
	require.ErrorContains(t, run(t.Context(), &output{}, "--file", path), "grups")
}
