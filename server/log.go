package server

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spillway-ci/spillway/config"
)

// NewLogger logs to w. Every record is redacted as a whole, as text, so that a
// secret cannot slip through in a kind of attribute that nobody thought of.
func NewLogger(w io.Writer, l config.Log) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	out := redactingWriter{w}
	switch l.Format {
	case "json":
		return slog.New(slog.NewJSONHandler(out, options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(out, options)), nil
	default:
		return nil, fmt.Errorf("log.format: %.40q is neither text nor json", l.Format)
	}
}

// redactingWriter redacts what is written at once; slog writes whole records.
type redactingWriter struct{ w io.Writer }

func (r redactingWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(r.w, config.Redact(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
