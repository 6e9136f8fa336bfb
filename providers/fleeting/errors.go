package fleeting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fleeting/wire"
)

const (
	// maxSaidBytes bounds what is repeated of a plugin's text [bytes].
	maxSaidBytes = 500
	// minSecretBytes: shorter values are too common to be taken out of a text [bytes].
	minSecretBytes = 6
	redacted       = "[redacted]"
)

// errClosed is the cause of calls that Close cut off.
var errClosed = errors.New("the provider is being closed")

// refusals are the codes with which a plugin's own code says no.
var refusals = []codes.Code{
	codes.Unknown, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
	codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated,
}

// refusal reports whether err is the plugin's own no to a call that was made. Any
// other error of a call means that nobody knows what it did.
func refusal(err error) bool {
	var said *wire.SaidError
	if errors.As(err, &said) {
		return true
	}
	var coded interface{ GRPCStatus() *status.Status }
	return errors.As(err, &coded) && slices.Contains(refusals, coded.GRPCStatus().Code())
}

// hitDeadline reports whether err is the end of a call's own time.
func hitDeadline(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

// callError classifies what a call of the plugin came to: always transient, for a
// text says nothing that could be relied on. The cause stays.
func (g *group) callError(what string, limit time.Duration, err error) error {
	var text string
	var said *wire.SaidError
	switch s, isStatus := status.FromError(err); {
	case errors.As(err, &said):
		text = "the plugin says: " + g.clean(said.Text)
	case hitDeadline(err):
		text = fmt.Sprintf("no answer within %s", limit)
	case isStatus && slices.Contains(refusals, s.Code()):
		text = "the plugin says: " + g.clean(s.Message())
	case isStatus && s.Code() == codes.Unavailable:
		text = "the connection broke: " + g.clean(s.Message())
	default:
		text = g.clean(err.Error())
	}
	return &pluginsdk.Error{Kind: pluginsdk.KindTransient, Message: what + ": " + text, Cause: err}
}

// clean makes a text of the plugin's fit to be shown: in one line, not too long, and
// without what plugin_config and its variables hold.
func (g *group) clean(s string) string {
	s = g.secrets.Replace(strings.ToValidUTF8(s, "�"))
	s = strings.Map(func(r rune) rune {
		if r < ' ' || (r >= 0x7f && r < 0xa0) {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxSaidBytes {
		s = strings.ToValidUTF8(s[:maxSaidBytes], "") + "…"
	}
	return strings.TrimSpace(s)
}

// secretsOf replaces all values of the plugin's configuration and environment: which
// of them are secret can't be known.
func secretsOf(pluginConfig json.RawMessage, env []string) *strings.Replacer {
	var value any
	_ = json.Unmarshal(pluginConfig, &value) // Configure has read it before
	found := valuesIn(value, nil)
	for _, entry := range env {
		_, v, _ := strings.Cut(entry, "=")
		found = append(found, v)
	}
	found = slices.DeleteFunc(found, func(v string) bool { return len(v) < minSecretBytes })
	// The longest first: one may be a part of another.
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, v := range found {
		pairs = append(pairs, v, redacted)
	}
	return strings.NewReplacer(pairs...)
}

func valuesIn(value any, found []string) []string {
	switch v := value.(type) {
	case string:
		found = append(found, v)
		for line := range strings.Lines(v) { // a key in PEM form may be quoted in part
			found = append(found, strings.TrimSpace(line))
		}
	case []any:
		for _, item := range v {
			found = valuesIn(item, found)
		}
	case map[string]any:
		for _, item := range v {
			found = valuesIn(item, found)
		}
	}
	return found
}
