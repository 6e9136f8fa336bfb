package providers

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillway-ci/spillway/internal/program"
)

// Limits on what of a plugin's outputs is logged.
const (
	linesPerSecond = 20
	lineBurst      = 200 // lines: a panic of a large plugin
)

// keyMasked stands for the lines of a private key, which are those that look like a
// keyLine between its begin and its end.
const keyMasked = "-----BEGIN PRIVATE KEY----- [MASKED]"

var (
	keyBegin = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----\s*$`)
	keyLine  = regexp.MustCompile(`^\s*(?:[A-Za-z0-9+/=]+|Proc-Type: .*|DEK-Info: .*)\s*$`)
	keyEnd   = regexp.MustCompile(`^\s*-----END [A-Z ]*PRIVATE KEY-----\s*$`)
)

// output carries the lines of a plugin's outputs to the log, within limits, and
// remembers the last ones. It may be used by several goroutines.
type output struct {
	log    *slog.Logger
	redact func(string) string
	words  program.LastWords
	mu     struct {
		sync.Mutex
		limit   *rate.Limiter
		dropped int
	}
}

func newOutput(log *slog.Logger, redact func(string) string) *output {
	o := &output{log: log, redact: redact}
	o.mu.limit = rate.NewLimiter(linesPerSecond, lineBurst)
	return o
}

// Drain implements [program.Sink]. Of a private key that is printed no line can be told
// by itself, so that it is masked here.
func (o *output) Drain(r io.Reader) {
	key := false
	program.EachLine(r, func(text string, cut bool) {
		switch {
		case keyBegin.MatchString(text):
			key = true
			o.line(keyMasked, false)
		case key && keyLine.MatchString(text):
		case key && keyEnd.MatchString(text):
			key = false
		default:
			key = false
			o.line(text, cut)
		}
	})
}

// Write takes lines from go-plugin, which hands them over in any pieces. A line
// in two pieces becomes two lines: a plugin made with our SDK sends none here.
func (o *output) Write(p []byte) (int, error) {
	o.Drain(bytes.NewReader(p))
	return len(p), nil
}

func (o *output) line(text string, cut bool) {
	text = o.redact(text)
	if cut {
		text += " …"
	}
	o.words.Heard(text)
	dropped, ok := o.admit()
	if !ok {
		return
	}
	if dropped > 0 {
		o.log.LogAttrs(context.Background(), slog.LevelWarn, "plugin says too much", slog.Int("lines_dropped", dropped))
	}
	o.log.LogAttrs(context.Background(), slog.LevelInfo, "plugin says", slog.String("line", text))
}

// admit says whether a line may be logged, and how many were dropped since the last
// one that was.
func (o *output) admit() (dropped int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.mu.limit.AllowN(time.Now(), 1) {
		o.mu.dropped++
		return 0, false
	}
	dropped, o.mu.dropped = o.mu.dropped, 0
	return dropped, true
}
