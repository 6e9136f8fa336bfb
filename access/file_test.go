package access

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func lines(t *testing.T, path string) (entries []Entry) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var e Entry
		require.NoError(t, json.Unmarshal([]byte(line), &e), "%q", line)
		entries = append(entries, e)
	}
	return entries
}

func auditOptions(log *bytes.Buffer) AuditOptions {
	return AuditOptions{
		Log:    slog.New(slog.NewTextHandler(log, nil)),
		Redact: func(s string) string { return strings.ReplaceAll(s, "secret", "[MASKED]") },
	}
}

func TestAuditFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"action":"before"}`+"\n"), 0o644))
	f, err := OpenFile(path, auditOptions(&bytes.Buffer{}))
	require.NoError(t, err)
	ctx := With(context.Background(), Identity{Name: "ci", Via: ViaCertificate, Subject: "CN=ci"})
	f.Record(ctx, Entry{Action: "job.cancel", Object: "job-1", Detail: "a secret\nand a line", OK: true})
	f.Record(context.Background(), Entry{Who: "x", Action: "long", Detail: strings.Repeat("ä", maxTextBytes)})
	require.NoError(t, f.Close())
	require.NoError(t, f.Close(), "twice is once")

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	got := lines(t, path)
	require.Len(t, got, 3)
	require.Equal(t, "before", got[0].Action)
	require.WithinDuration(t, time.Now(), got[1].At, time.Minute)
	got[1].At = time.Time{}
	require.Equal(t, Entry{Who: "ci", Via: "certificate", Subject: "CN=ci", Action: "job.cancel", Object: "job-1", Detail: "a [MASKED]\nand a line", OK: true}, got[1])
	require.Equal(t, strings.Repeat("ä", maxTextBytes/2), got[2].Detail)
	require.Equal(t, "x", got[2].Who)
}

func TestAuditFileIsBounded(t *testing.T) {
	const maxBytes, entries = 4 << 10, 1000
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	f, err := openFile(path, maxBytes, auditOptions(&bytes.Buffer{}))
	require.NoError(t, err)
	for i := range entries {
		f.Record(t.Context(), Entry{Action: "x", Object: fmt.Sprint(i)})
	}
	require.NoError(t, f.Close())

	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, KeptFiles+1)
	last := entries - 1
	for i := range KeptFiles + 1 { // from the newest back, no entry is missing
		name := path
		if i > 0 {
			name = fmt.Sprintf("%s.%d", path, i)
		}
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), int64(maxBytes))
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		got := lines(t, name)
		for j := len(got) - 1; j >= 0; j-- {
			require.Equal(t, fmt.Sprint(last), got[j].Object)
			last--
		}
	}
}

// What the file cannot take is in the log, and counted.
func TestLostEntriesAreLogged(t *testing.T) {
	var log bytes.Buffer
	o, lost := auditOptions(&log), 0
	o.Lost = func() { lost++ }
	dir := filepath.Join(t.TempDir(), "audit")
	require.NoError(t, os.Mkdir(dir, 0o700))
	f, err := openFile(filepath.Join(dir, "a"), 1, o) // each entry needs a file of its own
	require.NoError(t, err)
	f.Record(t.Context(), Entry{Action: "first"})
	require.Eventually(t, func() bool { return len(lines(t, filepath.Join(dir, "a"))) == 1 }, 80*time.Second, time.Millisecond)
	require.NoError(t, os.RemoveAll(dir))
	f.Record(t.Context(), Entry{Who: "ci", Action: "job.cancel", Object: "job-9", Detail: "secret"})
	require.NoError(t, f.Close())
	require.Equal(t, 1, lost)
	require.Contains(t, log.String(), "who=ci")
	require.Contains(t, log.String(), "object=job-9")
	require.NotContains(t, log.String(), "secret")

	f.Record(t.Context(), Entry{Action: "late"})
	require.Equal(t, 2, lost)
}

func TestRecordDoesNotHang(t *testing.T) {
	var log bytes.Buffer
	f := &File{opt: auditOptions(&log), queue: make(chan Entry, maxQueued)} // nobody writes
	for range maxQueued {
		f.Record(t.Context(), Entry{Action: "x"})
	}
	require.Empty(t, log.String())
	f.Record(t.Context(), Entry{Action: "one too many"})
	require.Contains(t, log.String(), "action=\"one too many\"")
}

func TestManyRecordAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	f, err := OpenFile(path, auditOptions(&bytes.Buffer{}))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 50 {
				f.Record(t.Context(), Entry{Action: "x"})
			}
		})
	}
	wg.Wait()
	require.NoError(t, f.Close())
	require.Len(t, lines(t, path), 500)
}

// Whoever records while the file is being closed has the entry in the file, or in the
// log and counted: never nowhere.
func TestNoEntryIsLostBetweenRecordAndClose(t *testing.T) {
	for range 50 {
		path := filepath.Join(t.TempDir(), "a")
		o := auditOptions(&bytes.Buffer{})
		o.Log = slog.New(slog.DiscardHandler)
		var recorded, lost atomic.Int32
		o.Lost = func() { lost.Add(1) }
		f, err := OpenFile(path, o)
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for lost.Load() == 0 {
					recorded.Add(1)
					f.Record(t.Context(), Entry{Action: "x"})
				}
			})
		}
		require.Eventually(t, func() bool { return recorded.Load() > 8 }, 80*time.Second, time.Microsecond)
		require.NoError(t, f.Close())
		all.Wait()
		require.Equal(t, int(recorded.Load()-lost.Load()), len(lines(t, path)))
	}
}

func TestAuditFileMustBeAFile(t *testing.T) {
	_, err := OpenFile(t.TempDir(), AuditOptions{})
	require.ErrorContains(t, err, "is no regular file")
	_, err = OpenFile(filepath.Join(t.TempDir(), "no", "such", "folder"), AuditOptions{})
	require.ErrorContains(t, err, "audit.file: ")
}

func TestLogAudit(t *testing.T) {
	var log bytes.Buffer
	NewLogAudit(auditOptions(&log)).Record(With(t.Context(), Identity{Name: "ci", Via: ViaToken}), Entry{Action: "job.cancel", Detail: "secret", OK: true})
	require.Contains(t, log.String(), "msg=audit who=ci via=token")
	require.Contains(t, log.String(), "[MASKED]")
}
