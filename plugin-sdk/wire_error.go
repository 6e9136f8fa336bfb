package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	providerv1 "github.com/spillway-ci/spillway/proto/spillway/provider/v1"
)

// MaxErrorBytes bounds the message of an error on the wire [bytes]: it travels
// in an HTTP/2 header.
const MaxErrorBytes = 4 << 10

// kinds pairs each kind with its number on the wire.
var kinds = newEnum(map[Kind]providerv1.ErrorKind{
	KindCapacity:    providerv1.ErrorKind_ERROR_KIND_CAPACITY,
	KindQuota:       providerv1.ErrorKind_ERROR_KIND_QUOTA,
	KindThrottled:   providerv1.ErrorKind_ERROR_KIND_THROTTLED,
	KindAuth:        providerv1.ErrorKind_ERROR_KIND_AUTH,
	KindInvalid:     providerv1.ErrorKind_ERROR_KIND_INVALID,
	KindTransient:   providerv1.ErrorKind_ERROR_KIND_TRANSIENT,
	KindConflict:    providerv1.ErrorKind_ERROR_KIND_CONFLICT,
	KindUnsupported: providerv1.ErrorKind_ERROR_KIND_UNSUPPORTED,
	KindNotFound:    providerv1.ErrorKind_ERROR_KIND_NOT_FOUND,
})

// codeOf is for people with a gRPC tool; the host reads only the detail.
var codeOf = map[Kind]codes.Code{
	KindCapacity:    codes.ResourceExhausted,
	KindQuota:       codes.ResourceExhausted,
	KindThrottled:   codes.ResourceExhausted,
	KindAuth:        codes.PermissionDenied,
	KindInvalid:     codes.InvalidArgument,
	KindTransient:   codes.Unavailable,
	KindConflict:    codes.Aborted,
	KindUnsupported: codes.Unimplemented,
	KindNotFound:    codes.NotFound,
}

// errorToWire reduces err to what may cross: kind, message, retry-after and
// observed. nil for nil.
func errorToWire(err error) *providerv1.ProviderError {
	if err == nil {
		return nil
	}
	w := &providerv1.ProviderError{Kind: kinds.wire(KindTransient), Message: clip(err.Error())}
	var e *Error
	if !errors.As(err, &e) {
		return w
	}
	w.Kind = kinds.wire(knownKind(e.Kind))
	w.Observed = toInt32(e.Observed)
	if outermost, ok := err.(*Error); ok { //nolint:errorlint // only an unwrapped *Error has no text of its own around it
		w.Message = clip(outermost.Message)
	}
	if e.RetryAfter > 0 {
		w.RetryAfter = durationpb.New(e.RetryAfter)
	}
	return w
}

// errorFromWire is the inverse of errorToWire. A kind that this version doesn't
// know is transient.
func errorFromWire(w *providerv1.ProviderError) error {
	if w == nil {
		return nil
	}
	k, ok := kinds.golang(w.GetKind())
	if !ok {
		k = KindTransient
	}
	e := &Error{Kind: k, Message: clip(w.GetMessage()), Observed: int(w.GetObserved())}
	if d := w.GetRetryAfter(); d.CheckValid() == nil {
		e.RetryAfter = max(d.AsDuration(), 0)
	}
	return e
}

// toStatus makes the gRPC error for err, the outcome of a call with ctx. nil for
// nil.
func toStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var classified *Error
	if ctx.Err() != nil && !errors.As(err, &classified) {
		return status.FromContextError(ctx.Err()).Err() // so that the host sees why, whoever's clock was first
	}
	w := errorToWire(err)
	k, _ := kinds.golang(w.GetKind())
	s := status.New(codeOf[k], w.GetMessage())
	if detailed, failed := s.WithDetails(w); failed == nil {
		s = detailed
	}
	return s.Err()
}

// fromStatus makes the *Error for an error of a gRPC call. A status without our
// detail comes from grpc itself: the connection broke, the deadline passed or
// the plugin is older than the method.
func fromStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	for _, d := range s.Details() {
		if w, ok := d.(*providerv1.ProviderError); ok {
			return errorFromWire(w)
		}
	}
	cause := endOf(ctx)
	switch code := s.Code(); {
	case code == codes.Unimplemented:
		return &Error{Kind: KindUnsupported, Message: clip(s.Message()), Cause: err}
	case code == codes.DeadlineExceeded && cause == nil:
		cause = context.DeadlineExceeded // the server's clock was first
		fallthrough
	case (code == codes.DeadlineExceeded || code == codes.Canceled) && cause != nil:
		return &Error{Kind: KindTransient, Message: "no answer: " + cause.Error(), Cause: cause}
	default: // also Canceled by nobody who called: the connection was closed under the call
		return &Error{Kind: KindTransient, Message: clip(s.Message()), Cause: err}
	}
}

// endOf says how and why ctx ended: it matches the context's error and its cause. nil
// if it has not ended.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// knownKind maps a kind that isn't one of ours to transient.
func knownKind(k Kind) Kind {
	if _, ok := codeOf[k]; ok {
		return k
	}
	return KindTransient
}

// clip bounds a message and makes it valid UTF-8, without which it can't be sent.
func clip(s string) string {
	if len(s) > MaxErrorBytes {
		s = s[:MaxErrorBytes]
	}
	return strings.ToValidUTF8(s, "�")
}
