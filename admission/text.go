package admission

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxReasonBytes bounds what is kept of a controller's sentence [bytes].
const MaxReasonBytes = 512

// Sentence makes a controller's words fit to be shown in a log, a terminal and a page:
// one line, valid, without control characters, bounded.
func Sentence(s string) string {
	s = s[:min(len(s), 4*MaxReasonBytes)]
	s = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError:
			return -1
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= MaxReasonBytes {
		return s
	}
	const more = "…"
	cut := MaxReasonBytes - len(more)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + more
}

// refusal is the detail of a rejected job.
func refusal(controller, reason string) string {
	if reason = Sentence(reason); reason == "" {
		reason = "it gave no reason"
	}
	return fmt.Sprintf("admission controller %s: %s", controller, reason)
}

// silence is the detail of a job whose controller was asked and did not answer.
func silence(controller string, deadline time.Duration) string {
	return fmt.Sprintf("admission controller %s did not answer within %s", controller, deadline)
}

// absence is the detail of a job whose controller could not be asked.
func absence(controller string, out time.Duration) string {
	return fmt.Sprintf("admission controller %s is not connected, or does not answer, for %s", controller, out)
}

// Detail is the sentence for the jobs that an absence fails.
func (a *Absence) Detail() string {
	return absence(a.Controller.Name, a.Out.Truncate(time.Second))
}
