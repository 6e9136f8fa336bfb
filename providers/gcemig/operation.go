package gcemig

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
)

// operationPauses are how long to wait between looks at an operation, which is done
// when its actions are scheduled, mostly within a second. Together they leave a write
// more than half of its 8 seconds.
var operationPauses = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond,
}

// confirm waits until the operation is done, for as long as operationPauses take, and
// returns what it ended with. what names the write.
func (s *session) confirm(ctx context.Context, in scope, op *computepb.Operation, what string) error {
	for _, wait := range operationPauses {
		if done(op) {
			break
		}
		if !s.pause(ctx, wait) {
			return unconfirmed(what, ctx.Err())
		}
		var err error
		if op, err = in.operation(ctx, op.GetName()); err != nil {
			return unconfirmed(what, err)
		}
	}
	if !done(op) {
		return unconfirmed(what, nil)
	}
	return operationError(op)
}

func done(op *computepb.Operation) bool { return op.GetStatus() == computepb.Operation_DONE }

// requestID is a UUID that is equal for equal parts and no others: Google ignores a
// request whose id it has seen (requestId). It is nil without a token, and then
// nothing is ever taken for a repetition.
func requestID(token string, parts ...string) *string {
	if token == "" {
		return nil
	}
	h := sha256.New()
	for _, part := range append([]string{token}, parts...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	b := h.Sum(nil)[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // RFC 9562: version 8, its variant
	id := fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	return &id
}
