package program

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pipe is an output that nobody had the time to read in time.
func pipe(t *testing.T, holds string) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	_, err = w.WriteString(holds)
	require.NoError(t, err)
	require.NoError(t, r.SetReadDeadline(time.Now().Add(-time.Second)))
	return r, w
}

// X23: the host may be too busy to read before the outputs of a dead program are given up.
// Why it died is read all the same.
func TestX23_LastWordsAreReadHoweverLate(t *testing.T) {
	r, w := pipe(t, "panic: no such region\n")
	said, err := io.ReadAll(&outlet{File: r})
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "somebody holds it still")
	require.Equal(t, "panic: no such region\n", string(said))

	_, err = w.WriteString("the end\n")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	said, err = io.ReadAll(&outlet{File: r})
	require.NoError(t, err)
	require.Equal(t, "the end\n", string(said))
}

// Who holds the output of a dead program and goes on writing is not listened to for ever.
func TestX23_WhatIsReadLateIsBounded(t *testing.T) {
	r, w := pipe(t, "")
	o := &outlet{File: r}
	read := 0
	for {
		_, err := w.WriteString(strings.Repeat("x", 4096))
		require.NoError(t, err)
		n, err := o.Read(make([]byte, 4096))
		if read += n; err != nil {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			break
		}
		require.LessOrEqual(t, read, maxLateBytes)
	}
	require.Equal(t, maxLateBytes, read)
}
