package main

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

// fakeDebug knows job 1, whose commands print what they are given and exit as they say.
type fakeDebug struct {
	debugv1.UnimplementedDebugServiceServer
}

func (fakeDebug) Find(_ context.Context, r *debugv1.FindRequest) (*debugv1.FindResponse, error) {
	if r.GetJobId() != "1" {
		return nil, status.Errorf(codes.NotFound, "job %s is not known here", r.GetJobId())
	}
	return &debugv1.FindResponse{MachineId: "m\x1b7", Pool: "linux", Attempt: 2, Replica: "one"}, nil
}

func (fakeDebug) Tunnel(rpc debugv1.DebugService_TunnelServer) error {
	first, err := rpc.Recv()
	if err != nil {
		return err
	}
	open := first.GetOpen()
	switch open.GetJobId() {
	case "1":
	case "ended":
		return status.Error(codes.FailedPrecondition, "job ended has ended (completed): nothing of it is left to reach")
	default:
		return status.Errorf(codes.NotFound, "job %s is not known here", open.GetJobId())
	}
	send := func(f *debugv1.Frame) { _ = rpc.Send(f) } // a caller who has left shows in Recv
	send(&debugv1.Frame{Frame: &debugv1.Frame_Opened{Opened: &debugv1.Opened{}}})
	words := open.GetTarget().GetExec().GetCommand()
	if len(words) > 0 {
		send(&debugv1.Frame{Frame: &debugv1.Frame_Data{Data: []byte(strings.Join(words, " ") + "\n")}})
		send(&debugv1.Frame{Frame: &debugv1.Frame_Stderr{Stderr: []byte("tty " + strconv.FormatBool(open.GetTarget().GetExec().GetTty()) + "\n")}})
		if words[0] == "idle" {
			return status.Error(codes.DeadlineExceeded, "nothing has passed for 10m0s (debug.idle_timeout)")
		}
	}
	for {
		f, err := rpc.Recv()
		switch {
		case err != nil:
			return nil //nolint:nilerr // the caller has left
		case f.GetData() != nil:
			send(&debugv1.Frame{Frame: &debugv1.Frame_Data{Data: f.GetData()}})
		case f.GetEnd() != nil && len(words) > 0:
			code, _ := strconv.Atoi(words[len(words)-1])
			send(&debugv1.Frame{Frame: &debugv1.Frame_Exit{Exit: &debugv1.Exit{Code: int32(code)}}})
			return nil
		case f.GetEnd() != nil:
			send(&debugv1.Frame{Frame: &debugv1.Frame_End{End: &debugv1.End{}}})
			return nil
		}
	}
}
