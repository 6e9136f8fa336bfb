package program

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"sync"
)

// Limits on what a program says on its outputs. More is read and dropped.
const (
	MaxLineBytes = 4 << 10
	tailLines    = 4   // kept for the error of a program that died
	MaxTailBytes = 300 // of each of them
)

// EachLine reads r to its end and hands on each line that isn't blank, without its
// end and as valid UTF-8. The rest of a line beyond MaxLineBytes is dropped; cut says
// so.
func EachLine(r io.Reader, each func(line string, cut bool)) {
	in := bufio.NewReaderSize(r, MaxLineBytes)
	rest := false // the line before was longer than the limit: this is its rest
	for {
		line, err := in.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		text := strings.ToValidUTF8(strings.TrimRight(string(line), "\r\n"), "�")
		if full {
			text = wholeWords(text)
		}
		if !rest && strings.TrimSpace(text) != "" {
			each(text, full)
		}
		rest = full
		if err != nil && !full {
			return
		}
	}
}

// wholeWords drops the last word of a line that was cut, where there are several: half of
// a secret would not be known for one, and shown.
func wholeWords(text string) string {
	if end := strings.LastIndexAny(text, " \t\"',;&=:"); end > 0 {
		return text[:end+1]
	}
	return text
}

// LastWords remembers the end of what a program said: the line that says why it died,
// if there is one, or the last few. It may be used by several goroutines.
type LastWords struct {
	mu struct {
		sync.Mutex
		tail  []string
		panic string
	}
}

// Heard takes a line.
func (w *LastWords) Heard(line string) {
	if len(line) > MaxTailBytes {
		line = strings.ToValidUTF8(line[:MaxTailBytes], "")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.panic == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")) {
		w.mu.panic = line
	}
	if len(w.mu.tail) == tailLines {
		w.mu.tail = w.mu.tail[1:]
	}
	w.mu.tail = append(w.mu.tail, line)
}

// Forget drops them, before the program is started again.
func (w *LastWords) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.tail, w.mu.panic = nil, ""
}

// String is what the program said at its end; empty if it said nothing.
func (w *LastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.panic != "" {
		return w.mu.panic
	}
	return strings.Join(w.mu.tail, " / ")
}
