package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The exit codes. They are part of the interface.
const (
	exitOK          = 0
	exitFailed      = 1 // a job failed, or what was named does not exist
	exitUsage       = 2 // wrong command, flag, argument or file
	exitUnreachable = 3 // no control plane answered
	exitRefused     = 4 // the control plane answered, and said no
)

const exitCodesHelp = `Exit codes:
  0  done
  1  a job failed (jobs submit --wait), or what was named does not exist
  2  wrong command, flag, argument or file
  3  no control plane answered
  4  the control plane refused`

// exitError is an error that knows its exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func failedf(format string, args ...any) error {
	return &exitError{exitFailed, fmt.Errorf(format, args...)}
}

func refusedf(format string, args ...any) error {
	return &exitError{exitRefused, fmt.Errorf(format, args...)}
}

// answered makes an error of a call into a sentence and an exit code.
func (a *app) answered(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	text := errors.New(s.Message())
	switch s.Code() {
	case codes.NotFound:
		return &exitError{exitFailed, text}
	case codes.InvalidArgument, codes.OutOfRange:
		return &exitError{exitUsage, text}
	case codes.Unavailable:
		if notConnected(s.Message()) {
			return a.unreachable(s.Message())
		}
		return &exitError{exitUnreachable, text}
	case codes.DeadlineExceeded:
		return &exitError{exitUnreachable, fmt.Errorf("%s did not answer within %s; try again, or give it longer with --timeout", a.addr, a.timeout)}
	case codes.Canceled:
		return &exitError{exitFailed, errors.New("interrupted")}
	case codes.Unimplemented:
		return &exitError{exitRefused, fmt.Errorf("%s does not know this request; is it a control plane of this version, and its api address (listen.api)?", a.addr)}
	case codes.Unauthenticated, codes.PermissionDenied:
		return refusedf("not allowed: %s", s.Message())
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return &exitError{exitFailed, text}
	default:
		return &exitError{exitRefused, text}
	}
}

// hungUp are grpc's words for a connection that the other side closed, depending
// on when that is noticed.
var hungUp = []string{"EOF", "broken pipe", "connection reset", "error reading", "certificate required", "transport is closing"}

// notConnected tells grpc's own words for a connection that never came to be
// from a control plane that says that something behind it is away.
func notConnected(message string) bool {
	return has(message, hungUp...) || has(message, "connection error", "name resolver", "produced zero addresses")
}

func has(message string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(message, w) })
}

func (a *app) unreachable(why string) error {
	hint := "start one with `controlplane serve`, or say where it is with --addr or SPILLWAY_ADDR"
	switch {
	case has(why, "first record does not look like a TLS handshake"):
		hint = "it does not speak TLS there: use --plaintext, or its api address (listen.api)"
	case has(why, hungUp...):
		hint = "it hung up at once: it may want TLS (--ca-file), a client certificate (--cert-file and --key-file), or be something else"
	case has(why, "certificate"):
		hint = "its certificate was not accepted: name the authority with --ca-file"
	}
	return &exitError{exitUnreachable, fmt.Errorf("no control plane answers at %s; %s", a.addr, hint)}
}
