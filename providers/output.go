package providers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits on what a plugin says on its outputs. More is read and dropped: a
// plugin whose pipe is full would hang in the middle of a call.
const (
	maxLineBytes   = 4 << 10
	linesPerSecond = 20
	lineBurst      = 200 // lines: a panic of a large plugin
	tailLines      = 4   // kept for the error of a plugin that died
	maxTailBytes   = 300 // of each of them
)

// output carries the lines of a plugin's outputs to the log, within limits, and
// remembers the last ones. It may be used by several goroutines.
type output struct {
	log    *slog.Logger
	redact func(string) string
	mu     struct {
		sync.Mutex
		limit   *rate.Limiter
		dropped int
		tail    []string
		panic   string // the line that says why the process died
	}
}

func newOutput(log *slog.Logger, redact func(string) string) *output {
	o := &output{log: log, redact: redact}
	o.mu.limit = rate.NewLimiter(linesPerSecond, lineBurst)
	return o
}

// forget drops the last words of the process before.
func (o *output) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.tail, o.mu.panic = nil, ""
}

// lastWords is what the process said at its end; empty if it said nothing.
func (o *output) lastWords() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.panic != "" {
		return o.mu.panic
	}
	return strings.Join(o.mu.tail, " / ")
}

// drain reads r to its end.
func (o *output) drain(r io.Reader) {
	lines := bufio.NewReaderSize(r, maxLineBytes)
	cut := false // the line before was longer than the limit: this is its rest
	for {
		line, err := lines.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		if !cut && len(line) > 0 {
			o.line(line, full)
		}
		cut = full
		if err != nil && !full {
			return
		}
	}
}

// Write takes lines from go-plugin, which hands them over in any pieces. A line
// in two pieces becomes two lines: a plugin made with our SDK sends none here.
func (o *output) Write(p []byte) (int, error) {
	o.drain(bytes.NewReader(p))
	return len(p), nil
}

func (o *output) line(b []byte, cut bool) {
	text := strings.ToValidUTF8(strings.TrimRight(string(b), "\r\n"), "�")
	if strings.TrimSpace(text) == "" {
		return
	}
	text = o.redact(text)
	if cut {
		text += " …"
	}
	dropped, ok := o.admit(text)
	if !ok {
		return
	}
	if dropped > 0 {
		o.log.LogAttrs(context.Background(), slog.LevelWarn, "plugin says too much", slog.Int("lines_dropped", dropped))
	}
	o.log.LogAttrs(context.Background(), slog.LevelInfo, "plugin says", slog.String("line", text))
}

// admit remembers text and says whether it may be logged, and how many were
// dropped since the last one that was.
func (o *output) admit(text string) (dropped int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.remember(text)
	if !o.mu.limit.AllowN(time.Now(), 1) {
		o.mu.dropped++
		return 0, false
	}
	dropped, o.mu.dropped = o.mu.dropped, 0
	return dropped, true
}

func (o *output) remember(text string) {
	if len(text) > maxTailBytes {
		text = strings.ToValidUTF8(text[:maxTailBytes], "")
	}
	if o.mu.panic == "" && (strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")) {
		o.mu.panic = text
	}
	if len(o.mu.tail) == tailLines {
		o.mu.tail = o.mu.tail[1:]
	}
	o.mu.tail = append(o.mu.tail, text)
}
