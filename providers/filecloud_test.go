package providers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// fileCloud is a provider whose cloud is a directory, so that it outlives the
// process. A group is a file with a line for each write that was carried out: the
// desired before, the one after, and who did it when. While it has a file "hold", writes
// are carried out and not answered.
type fileCloud struct {
	pluginsdk.Unsupported
	Dir   string        `json:"dir"`
	Stall time.Duration `json:"stall"` // the longest wait before a write, and before its answer
}

func (c *fileCloud) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{Name: "filecloud", Version: "1.0.0", ConfigSchema: `{"type":"object"}`}, nil
}

func (c *fileCloud) Configure(_ context.Context, config []byte) error {
	return json.Unmarshal(config, c)
}

func (c *fileCloud) Status(_ context.Context, groups []string) ([]pluginsdk.GroupStatus, error) {
	answers := make([]pluginsdk.GroupStatus, len(groups))
	for i, g := range groups {
		writes, err := writesOf(filepath.Join(c.Dir, g))
		answers[i] = pluginsdk.GroupStatus{Group: g, Desired: desiredAfter(writes), Max: 10_000, Err: err}
	}
	return answers, nil
}

func (c *fileCloud) ListInstances(_ context.Context, group string) ([]pluginsdk.Instance, error) {
	writes, err := writesOf(filepath.Join(c.Dir, group))
	var all []pluginsdk.Instance
	for i := range desiredAfter(writes) {
		all = append(all, pluginsdk.Instance{ID: itoa(i), State: pluginsdk.StateRunning})
	}
	return all, err
}

// SetDesired of a group "endless" writes until its caller has gone.
func (c *fileCloud) SetDesired(ctx context.Context, r pluginsdk.SetDesired) (int, error) {
	if r.Group == "endless" {
		for n := 0; ctx.Err() == nil; n++ {
			if err := c.write(r.Group, n, n+1); err != nil {
				return 0, err
			}
			time.Sleep(time.Millisecond)
		}
		return 0, ctx.Err()
	}
	if err := c.note("asked", r.Token); err != nil {
		return 0, err
	}
	c.stall()
	defer c.stall()
	door, err := os.OpenFile(filepath.Join(c.Dir, r.Group+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { _ = door.Close() }()
	if err := syscall.Flock(int(door.Fd()), syscall.LOCK_EX); err != nil {
		return 0, err
	}
	writes, err := writesOf(filepath.Join(c.Dir, r.Group))
	if err != nil {
		return 0, err
	}
	switch now := desiredAfter(writes); now {
	case r.Target:
		return now, nil
	case r.Expected:
		return r.Target, errors.Join(c.write(r.Group, now, r.Target), c.hold())
	default:
		return 0, pluginsdk.Conflict(now)
	}
}

func (c *fileCloud) Remove(context.Context, string, []string, string) ([]pluginsdk.RemoveResult, error) {
	return nil, pluginsdk.ErrUnsupported
}

func (c *fileCloud) Close(context.Context) error { return nil }

func (c *fileCloud) stall() { time.Sleep(rand.N(c.Stall + 1)) }

// hold waits while the cloud is to answer nothing, and notes that it does.
func (c *fileCloud) hold() error {
	if !c.holds() {
		return nil
	}
	err := c.note("held", "after a write")
	for c.holds() {
		time.Sleep(time.Millisecond)
	}
	return err
}

func (c *fileCloud) holds() bool {
	_, err := os.Stat(filepath.Join(c.Dir, "hold"))
	return err == nil
}

func (c *fileCloud) write(group string, from, to int) error {
	return c.note(group, fmt.Sprintf("%d %d %d %d", from, to, os.Getpid(), time.Now().UnixNano()))
}

// note appends a line in one piece: a kill comes before or after it.
func (c *fileCloud) note(file, line string) error {
	f, err := os.OpenFile(filepath.Join(c.Dir, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = f.WriteString(line + "\n")
	return err
}

// fileWrite is one line of a group's file.
type fileWrite struct {
	from, to, pid int
	at            time.Time
}

func writesOf(path string) ([]fileWrite, error) {
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var all []fileWrite
	for line := range strings.Lines(string(text)) {
		var w fileWrite
		var at int64
		if _, err := fmt.Sscan(line, &w.from, &w.to, &w.pid, &at); err != nil {
			return nil, err
		}
		w.at = time.Unix(0, at)
		all = append(all, w)
	}
	return all, nil
}

func desiredAfter(writes []fileWrite) int {
	if len(writes) == 0 {
		return 0
	}
	return writes[len(writes)-1].to
}

func fileCloudConfig(t *testing.T, dir string, stall time.Duration) []byte {
	t.Helper()
	config, err := json.Marshal(&fileCloud{Dir: dir, Stall: stall})
	require.NoError(t, err)
	return config
}

func countLines(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return bytes.Count(text, []byte("\n"))
}
