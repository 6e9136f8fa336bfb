package server

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/store"
)

// asStatus gives an error its place in gRPC's vocabulary. A status stays as it
// is. The text is for the person who asked.
func asStatus(err error) error {
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	text := config.Redact(err.Error())
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, text)
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the answer took too long; try again, or with a longer timeout")
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnknown):
		return status.Error(codes.Unavailable, "the store does not answer; decisions are held until it does ("+text+")")
	case errors.Is(err, spillway.ErrInvalid):
		return status.Error(codes.InvalidArgument, text)
	case errors.Is(err, store.ErrUnknownJob):
		return status.Error(codes.NotFound, text)
	default:
		return status.Error(codes.Internal, text)
	}
}

func asJobStatus(err error, id string) error {
	if errors.Is(err, store.ErrUnknownJob) {
		return status.Errorf(codes.NotFound, "there is no job %.140q; it was never accepted, or has ended long ago and is forgotten", id)
	}
	return asStatus(err)
}

// listed says which names there are, cut where a longer list helps nobody.
func listed(names []string) string {
	const shown = 30
	if len(names) == 0 {
		return "there is none"
	}
	names = slices.Clone(names)
	if len(names) > shown {
		names = append(names[:shown:shown], "…")
	}
	return "there are " + strings.Join(names, ", ")
}
