package sidecar

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// restart is a command for /bin/sh that starts the runner; "" = there is none.
type restart string

const (
	// maxSaidBytes bounds what is repeated of what a command said [bytes].
	maxSaidBytes = 160
	// maxOutputBytes bounds what is kept of it, the end [bytes].
	maxOutputBytes = 64 << 10
)

// ending keeps the last maxOutputBytes that are written to it.
type ending struct{ kept []byte }

// Write never fails.
func (e *ending) Write(p []byte) (int, error) {
	e.kept = append(e.kept, p...)
	e.kept = e.kept[max(0, len(e.kept)-maxOutputBytes):]
	return len(p), nil
}

func (r restart) run(ctx context.Context) error {
	if r == "" {
		return ErrNoStart
	}
	if _, err := command(ctx, "/bin/sh", "-c", string(r)); err != nil {
		return fmt.Errorf("start the runner: %w", err)
	}
	return nil
}

// command runs a program and returns what it printed, the end if it is much. Its error has
// the last line of what it complained about.
func command(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, complaint ending
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.Env = environment()
	cmd.WaitDelay = time.Second // what it leaves running may have inherited its output
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s took more than %s: %w", name, within, context.Cause(ctx))
	}
	if err != nil && !cmd.ProcessState.Success() {
		return nil, fmt.Errorf("%s: %w: %s", name, err, lastLine(complaint.kept))
	}
	return out.kept, nil
}

func lastLine(output []byte) string {
	output = bytes.TrimSpace(output)
	return head(strings.TrimSpace(string(output[bytes.LastIndexByte(output, '\n')+1:])), maxSaidBytes)
}

// tokenVariable may hold our token, which is nobody else's: a job could read it.
const tokenVariable = "SPILLWAY_RUNNER_TOKEN"

// environment is ours without secrets.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, tokenVariable+"=") })
}
