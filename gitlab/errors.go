package gitlab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What a call can come to. Read them with errors.Is, and Limited with errors.As.
var (
	// ErrNotFound: GitLab knows no such thing, or does not show it to this token.
	ErrNotFound = errors.New("not found in GitLab")
	// ErrUnauthorized: the token is missing, wrong, expired or revoked.
	ErrUnauthorized = errors.New("GitLab does not accept the token")
	// ErrForbidden: the token is good and lacks a right; the error names it.
	ErrForbidden = errors.New("the token lacks a right")
	// ErrUnavailable: GitLab could not be reached or said that it can't answer now.
	// The same call may work later.
	ErrUnavailable = errors.New("GitLab is not available")
	// ErrProtocol: something answered, and not as GitLab does. Repeating won't help.
	ErrProtocol = errors.New("the answer is not one of GitLab's API")
	// ErrConflict: the job is not in a state in which that can be done.
	ErrConflict = errors.New("the job's state does not allow it")
	// ErrTooMany: a list is longer than the limit on its pages. It is an error and not
	// a shorter list, since nobody could tell that from a whole one.
	ErrTooMany = errors.New("the list is too long")
)

// Limits on how long GitLab can make a caller wait [time]. GitLab's own windows are a
// minute; a header with nonsense must not stop us for a day.
const (
	MaxRetryAfter     = 5 * time.Minute
	minRetryAfter     = time.Second
	defaultRetryAfter = 10 * time.Second // where a 429 does not say
)

// Limited says that the call was not made or not answered because there were too
// many, and when to try again.
type Limited struct {
	RetryAfter time.Duration // 1 s to MaxRetryAfter
	// Own: GitLab was not asked, because our budget is used up or GitLab has told us
	// before to wait.
	Own bool
}

// Error is a sentence.
func (l *Limited) Error() string {
	who := "GitLab answers that there are too many requests"
	if l.Own {
		who = "no request to GitLab is allowed now"
	}
	return fmt.Sprintf("%s: try again in %s", who, l.RetryAfter.Round(time.Second/10))
}

// cause tells why ctx ended, so that errors.Is finds both what ended it and, where
// that is something of the caller's, context.Canceled.
func cause(ctx context.Context) error {
	why := context.Cause(ctx)
	if errors.Is(why, ctx.Err()) {
		return why
	}
	return fmt.Errorf("%w (%w)", why, ctx.Err())
}

// maxMessageBytes bounds what of somebody else's text gets into an error [bytes].
const maxMessageBytes = 200

// quote makes a foreign text fit for an error: short, printable, without the secrets.
func quote(text string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[masked]")
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == '\u007f' || r == '\ufffd' {
			return -1
		}
		return r
	}, text)
	if len(text) > maxMessageBytes {
		text = strings.ToValidUTF8(text[:maxMessageBytes], "") + "…"
	}
	return text
}
