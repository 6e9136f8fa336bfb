package access

import (
	"context"
	"strings"
	"time"
)

// Entry is one thing that somebody did, or was not allowed to do. It never holds a
// secret: no token, no script, no variable, no byte that went through a tunnel.
type Entry struct {
	At  time.Time `json:"at"` // zero: when it is recorded
	Who string    `json:"who"`
	Via string    `json:"via"`
	// Subject is that of the identity.
	Subject string `json:"subject,omitempty"`
	Action  string `json:"action"` // "job.cancel", "debug.open", "denied"
	Object  string `json:"object,omitempty"`
	Detail  string `json:"detail,omitempty"`
	OK      bool   `json:"ok"`
}

// Audit keeps entries. Record fills Who, Via and Subject from ctx's identity where the entry
// leaves them empty. It does not block for long and has no error to return: an entry
// that could not be kept is logged in its place, and counted.
type Audit interface {
	Record(ctx context.Context, e Entry)
}

// filled completes an entry with the identity, bounds it and redacts it.
func (e Entry) filled(ctx context.Context, now time.Time, redact func(string) string) Entry {
	if i, ok := From(ctx); ok && e.Who == "" {
		e.Who, e.Via, e.Subject = i.Name, i.Via, i.Subject
	}
	if e.At.IsZero() {
		e.At = now
	}
	e.At = e.At.UTC()
	for _, text := range []*string{&e.Who, &e.Subject, &e.Action, &e.Object, &e.Detail} {
		if redact != nil {
			*text = redact(*text)
		}
		if len(*text) > maxTextBytes {
			*text = strings.ToValidUTF8((*text)[:maxTextBytes], "")
		}
	}
	return e
}

// maxTextBytes bounds each text of an entry [bytes]; what is beyond it is cut.
const maxTextBytes = 512

// NoAudit keeps nothing, for tests.
type NoAudit struct{}

// Record does nothing.
func (NoAudit) Record(context.Context, Entry) {}
