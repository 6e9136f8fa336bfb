package ingress

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

// Limits of a target.
const (
	MaxArgs      = 256      // of a command
	MaxArgsBytes = 32 << 10 // of all of them together
	maxTermBytes = 64
)

var (
	socketName = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	termName   = regexp.MustCompile(`^[A-Za-z0-9._+-]*$`)
)

// checkTarget refuses what no machine would take.
func checkTarget(open *debugv1.Open) error {
	if id := open.GetJobId(); id == "" || len(id) > spillway.MaxJobIDBytes {
		return status.Errorf(codes.InvalidArgument, "a job's id has 1 to %d bytes", spillway.MaxJobIDBytes)
	}
	bad := func(format string, args ...any) error { return status.Errorf(codes.InvalidArgument, format, args...) }
	switch t := open.GetTarget().GetTarget().(type) {
	case *debugv1.Target_Exec:
		return checkExec(t.Exec, bad)
	case *debugv1.Target_Port:
		if n := t.Port.GetPort(); n < 1 || n > 65535 {
			return bad("port %d: use 1 to 65535", n)
		}
	case *debugv1.Target_Socket:
		if !socketName.MatchString(t.Socket.GetName()) {
			return bad("socket %.80q: its name is 1 to 64 of a-z, 0-9, - and _", t.Socket.GetName())
		}
	default:
		return bad("an open has a target: exec, port or socket")
	}
	return nil
}

func checkExec(e *debugv1.Exec, bad func(string, ...any) error) error {
	size := 0
	for _, arg := range e.GetCommand() {
		size += len(arg)
	}
	switch {
	case len(e.GetCommand()) == 0 || e.GetCommand()[0] == "":
		return bad("no command")
	case len(e.GetCommand()) > MaxArgs:
		return bad("a command of %d words, at most %d are allowed", len(e.GetCommand()), MaxArgs)
	case size > MaxArgsBytes:
		return bad("a command of %d bytes, at most %d are allowed", size, MaxArgsBytes)
	case len(e.GetTerm()) > maxTermBytes || !termName.MatchString(e.GetTerm()):
		return bad("term %.80q is no name of a terminal", e.GetTerm())
	}
	return nil
}

// kindOf is what may be told of a target: never a command's words.
func kindOf(t *debugv1.Target) (kind, object string) {
	switch t := t.GetTarget().(type) {
	case *debugv1.Target_Exec:
		return "exec", "exec"
	case *debugv1.Target_Port:
		return "port", fmt.Sprintf("port %d", t.Port.GetPort())
	case *debugv1.Target_Socket:
		return "socket", "socket " + t.Socket.GetName()
	default:
		return "other", "nothing"
	}
}

// Find says where a job runs.
func (s *Service) Find(ctx context.Context, r *debugv1.FindRequest) (*debugv1.FindResponse, error) {
	if err := access.Require(ctx, access.Debug); err != nil {
		return nil, err
	}
	record, err := s.find(ctx, spillway.JobID(r.GetJobId()))
	if err != nil {
		return nil, err
	}
	m, _, err := s.opt.Store.Machine(ctx, record.Pool, record.Machine)
	if err != nil {
		return nil, errStore
	}
	return &debugv1.FindResponse{MachineId: string(record.Machine), Pool: record.Pool, Attempt: int32(record.Attempt), Replica: m.Replica}, nil
}

var errStore = status.Error(codes.Unavailable, "the store, which knows where the job is, can't be reached now; try again")

// find returns the record of a job that runs.
func (s *Service) find(ctx context.Context, id spillway.JobID) (*spillway.JobRecord, error) {
	if id == "" || len(id) > spillway.MaxJobIDBytes {
		return nil, status.Errorf(codes.InvalidArgument, "a job's id has 1 to %d bytes", spillway.MaxJobIDBytes)
	}
	records, err := s.opt.Store.GetMany(ctx, []spillway.JobID{id})
	if err != nil || len(records) != 1 {
		return nil, errStore
	}
	r := records[0]
	switch {
	case r == nil:
		return nil, status.Errorf(codes.NotFound, "job %s is not known here: never accepted, ended long ago, or one that GitLab hands out", id)
	case r.State.Terminal():
		return nil, status.Errorf(codes.FailedPrecondition, "job %s has ended (%s): nothing of it is left to reach", id, r.State)
	case r.State != spillway.Running || r.Machine == "":
		return nil, status.Errorf(codes.FailedPrecondition, "job %s has not begun (%s): there is nothing to reach yet", id, r.State)
	}
	return r, nil
}

// open finds the job, takes a seat, and opens the way to the target.
func (s *Service) open(ctx context.Context, r request) (*live, error) {
	record, err := s.find(ctx, r.job)
	if err != nil {
		return nil, err
	}
	leave, err := s.seats.take(r.job)
	if err != nil {
		return nil, err
	}
	t, err := s.reach(ctx, r, record)
	if err != nil {
		leave()
		return nil, err
	}
	return &live{s: s, r: r, tunnel: t, leave: leave}, nil
}

// reach opens the tunnel, here or by the replica that has the machine, and waits until
// the target is there.
func (s *Service) reach(ctx context.Context, r request, record *spillway.JobRecord) (Tunnel, error) {
	t, err := s.opt.Machines.Open(ctx, r.job, r.target)
	if errors.Is(err, ErrElsewhere) {
		if r.forOthers {
			return nil, status.Errorf(codes.Unavailable, "job %s has just left replica %s; try again", r.job, s.opt.Replica)
		}
		t, err = s.elsewhere(ctx, r, record)
	}
	if err != nil {
		return nil, err
	}
	late := time.AfterFunc(openWithin, func() {
		t.Close(status.Errorf(codes.Unavailable, "the machine of job %s did not answer within %s; try again", r.job, openWithin))
	})
	defer late.Stop()
	stop := context.AfterFunc(ctx, func() { t.Close(errCallerLeft) })
	defer stop()
	f, err := t.Recv()
	switch {
	case err != nil && status.Code(err) == codes.Unknown: // it ended without a word
		err = status.Errorf(codes.Unavailable, "the machine of job %s closed the tunnel at once; try again", r.job)
	case err == nil && f.GetOpened() == nil:
		err = errMachineFrame
	}
	if err != nil {
		t.Close(err)
		return nil, err
	}
	return t, nil
}
