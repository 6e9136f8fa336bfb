package child

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
)

// Limits on what a program says on its outputs. More is read and dropped: a program
// whose pipe is full would hang in the middle of a call.
const (
	MaxLineBytes = 4 << 10
	// tailLines are kept for the error of a program that died.
	tailLines    = 4
	maxTailBytes = 300 // of each of them
)

// lines hands on what a program says, line by line, and remembers the end. It may
// be used by several goroutines.
type lines struct {
	say func(line string)
	mu  struct {
		sync.Mutex
		tail []string
	}
}

// lastWords is what the program said at its end; empty if it said nothing.
func (l *lines) lastWords() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.mu.tail, " / ")
}

// drain reads r to its end.
func (l *lines) drain(r io.Reader) {
	in := bufio.NewReaderSize(r, MaxLineBytes)
	cut := false // the line before was longer than the limit: this is its rest
	for {
		line, err := in.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		if !cut && len(bytes.TrimSpace(line)) > 0 {
			l.line(line)
		}
		cut = full
		if err != nil && !full {
			return
		}
	}
}

// Write takes lines from go-plugin's own streams.
func (l *lines) Write(p []byte) (int, error) {
	l.drain(bytes.NewReader(p))
	return len(p), nil
}

func (l *lines) line(b []byte) {
	text := strings.ToValidUTF8(strings.TrimRight(string(b), "\r\n"), "�")
	l.mu.Lock()
	if len(l.mu.tail) == tailLines {
		l.mu.tail = l.mu.tail[1:]
	}
	l.mu.tail = append(l.mu.tail, text[:min(len(text), maxTailBytes)])
	l.mu.Unlock()
	if l.say != nil {
		l.say(text)
	}
}
