package main

import (
	"context"
	"errors"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway/internal/tlsfiles"
	coordinatorpb "github.com/spillway-ci/spillway/proto/coordinator"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
)

// maxAnswerBytes bounds one answer [bytes]: 1,000 records with their output's
// tail are the largest.
const maxAnswerBytes = 128 << 20

// client is a connection to a control plane.
type client struct {
	admin adminv1.AdminServiceClient
	jobs  jobsv1.JobServiceClient

	admission admissionv1.AdmissionServiceClient
	debug     debugv1.DebugServiceClient
	cells     cellsv1.CellServiceClient

	coordinator coordinatorpb.PoolCoordinatorClient
}

// with connects, lets use ask, and makes what went wrong a sentence.
func (a *app) with(use func(c client) error) (err error) {
	creds, err := a.credentials()
	if err != nil {
		return err
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes))}
	if a.tokenFile != "" {
		if _, err := (tokenFile{a.tokenFile}).read(); err != nil {
			return usagef("--token-file: %v", err)
		}
		options = append(options, grpc.WithPerRPCCredentials(tokenFile{a.tokenFile}))
	}
	conn, err := grpc.NewClient(a.addr, options...)
	if err != nil {
		return usagef("--addr %q: %v", a.addr, err)
	}
	defer func() { _ = conn.Close() }() // everything has been said by then
	return a.answered(use(client{
		admin: adminv1.NewAdminServiceClient(conn), jobs: jobsv1.NewJobServiceClient(conn), admission: admissionv1.NewAdmissionServiceClient(conn),
		debug: debugv1.NewDebugServiceClient(conn), cells: cellsv1.NewCellServiceClient(conn), coordinator: coordinatorpb.NewPoolCoordinatorClient(conn),
	}))
}

// ask is one request with the time limit.
func ask[Req, Resp any](ctx context.Context, a *app, call func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return call(ctx, req)
}

// credentials: TLS, unless it is switched off or the address is a loopback one
// and nothing says otherwise.
func (a *app) credentials() (credentials.TransportCredentials, error) {
	if a.plaintext || (a.caFile == "" && a.certFile == "" && tlsfiles.Loopback(a.addr)) {
		return insecure.NewCredentials(), nil
	}
	files, err := tlsfiles.Open(tlsfiles.Files{Cert: a.certFile, Key: a.keyFile, CA: a.caFile}, tlsfiles.Options{})
	if err != nil {
		return nil, usagef("%s: %v", a.fileFlag(err), err)
	}
	return tlsfiles.Credentials(files.Client, ""), nil
}

// fileFlag is the flag that an error of the TLS files is about.
func (a *app) fileFlag(err error) string {
	var path *os.PathError
	switch {
	case errors.Is(err, tlsfiles.ErrPair), errors.As(err, &path) && path.Path == a.certFile:
		return "--cert-file"
	case errors.As(err, &path) && path.Path == a.keyFile:
		return "--key-file"
	default:
		return "--ca-file"
	}
}
