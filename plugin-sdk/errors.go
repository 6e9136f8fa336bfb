package pluginsdk

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies an error. The set is closed: the control plane's reaction
// depends on it and on nothing else.
type Kind string

// The kinds of error, and what the host does.
const (
	KindCapacity    Kind = "capacity"    // the cloud has none left: next pool, cool-off
	KindQuota       Kind = "quota"       // the account's limit: next pool, cool-off
	KindThrottled   Kind = "throttled"   // too many calls: next pool, cool-off, Retry-After
	KindAuth        Kind = "auth"        // next pool, cool-off, finding
	KindInvalid     Kind = "invalid"     // fails until somebody changes something
	KindTransient   Kind = "transient"   // may work next time
	KindConflict    Kind = "conflict"    // not a failure: look again at once
	KindUnsupported Kind = "unsupported" // never asked again
	KindNotFound    Kind = "not_found"   // no such group
)

// Sentinels, for errors.Is. Each matches every *Error of its kind.
var (
	ErrCapacity    = &Error{Kind: KindCapacity}
	ErrQuota       = &Error{Kind: KindQuota}
	ErrThrottled   = &Error{Kind: KindThrottled}
	ErrAuth        = &Error{Kind: KindAuth}
	ErrInvalid     = &Error{Kind: KindInvalid}
	ErrTransient   = &Error{Kind: KindTransient}
	ErrConflict    = &Error{Kind: KindConflict}
	ErrUnsupported = &Error{Kind: KindUnsupported}
	ErrNotFound    = &Error{Kind: KindNotFound}
)

// Error is a classified error of a provider.
type Error struct {
	Kind       Kind
	Message    string        // for people; never a secret
	RetryAfter time.Duration // 0 = not said
	Observed   int           // with KindConflict: the group's desired
	Cause      error         // stays in the plugin; only Message crosses the wire
}

// Errorf makes an *Error of kind k. %w in format keeps the cause.
func Errorf(k Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: k, Message: err.Error(), Cause: errors.Unwrap(err)}
}

// Conflict is the error for a desired that is not the expected one.
func Conflict(observed int) *Error {
	return &Error{Kind: KindConflict, Message: fmt.Sprintf("desired is %d", observed), Observed: observed}
}

func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Kind)
	}
	return string(e.Kind) + ": " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is matches the sentinels of this package by kind.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Kind == e.Kind
}

// KindOf returns the kind of err: KindTransient for an error that nobody
// classified, "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindTransient
}
