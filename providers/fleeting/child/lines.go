package child

import (
	"bytes"
	"io"

	"github.com/spillway-ci/spillway/internal/program"
)

// lines hands on what a program says, line by line, and remembers the end. It may
// be used by several goroutines.
type lines struct {
	say    func(line string)
	redact func(line string) string
	words  program.LastWords
}

// Drain implements [program.Sink].
func (l *lines) Drain(r io.Reader) { program.EachLine(r, l.line) }

// Write takes lines from go-plugin's own streams.
func (l *lines) Write(p []byte) (int, error) {
	l.Drain(bytes.NewReader(p))
	return len(p), nil
}

func (l *lines) line(text string, _ bool) {
	if l.redact != nil {
		text = l.redact(text)
	}
	l.words.Heard(text)
	if l.say != nil {
		l.say(text)
	}
}
