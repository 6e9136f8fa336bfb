package providers

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/program"
)

func loggedOutput() (*output, *bytes.Buffer) {
	var log bytes.Buffer
	return newOutput(slog.New(slog.NewTextHandler(&log, nil)), func(s string) string {
		return strings.ReplaceAll(s, "hunter2", "[MASKED]")
	}), &log
}

func TestOutputIsLimitedByRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, log := loggedOutput()
		o.Drain(strings.NewReader(strings.Repeat("line\n", 10_000)))
		require.Equal(t, lineBurst, strings.Count(log.String(), "plugin says\""))
		time.Sleep(time.Second)
		o.Drain(strings.NewReader("after\n"))
		require.Contains(t, log.String(), "lines_dropped=9800")
		require.Contains(t, log.String(), "line=after")
	})
}

func TestOutputIsLimitedByLine(t *testing.T) {
	o, log := loggedOutput()
	o.Drain(io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), strings.NewReader("\nnext\n\n  \nlast")))
	require.Equal(t, 3, strings.Count(log.String(), "plugin says"), "the long line, next and last")
	require.Less(t, log.Len(), program.MaxLineBytes+500)
	require.Contains(t, log.String(), "x …")
}

// T8: a private key is in many lines, none of which looks like a secret by itself.
func TestT8_APrivateKeyInLines(t *testing.T) {
	o, log := loggedOutput()
	const key = "-----BEGIN RSA PRIVATE KEY-----\nMIIone\nMIItwo==\n-----END RSA PRIVATE KEY-----\n"
	o.Drain(strings.NewReader("before\n" + key + "after\n"))
	require.NotContains(t, log.String()+o.words.String(), "MII")
	require.Equal(t, "before / "+keyMasked+" / after", o.words.String())

	o.words.Forget()
	o.Drain(strings.NewReader("want -----BEGIN PRIVATE KEY-----\nbut got none\nMIIfour\n"))
	require.Equal(t, keyMasked+" / but got none / MIIfour", o.words.String(), "what is no key is shown")
}

func TestLastWords(t *testing.T) {
	o, _ := loggedOutput()
	require.Empty(t, o.words.String())
	for _, l := range []string{"one", "two", "three hunter2", "four", "five"} {
		_, _ = o.Write([]byte(l + "\n"))
	}
	require.Equal(t, "two / three [MASKED] / four / five", o.words.String())
	_, _ = o.Write([]byte("panic: no hunter2\n\ngoroutine 1 [running]:\nmain.main()\n"))
	require.Equal(t, "panic: no [MASKED]", o.words.String(), "not the end of the stack")
	o.words.Forget()
	require.Empty(t, o.words.String())
	_, _ = o.Write([]byte(strings.Repeat("é", program.MaxTailBytes) + "\n"))
	require.LessOrEqual(t, len(o.words.String()), program.MaxTailBytes)
}
