package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
)

// maxAnswerBytes bounds one answer [bytes]: 1,000 records with their output's
// tail are the largest.
const maxAnswerBytes = 128 << 20

// client is a connection to a control plane.
type client struct {
	admin adminv1.AdminServiceClient
	jobs  jobsv1.JobServiceClient
}

// with connects, lets use ask, and makes what went wrong a sentence.
func (a *app) with(use func(c client) error) (err error) {
	creds, err := a.credentials()
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(a.addr, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)))
	if err != nil {
		return usagef("--addr %q: %v", a.addr, err)
	}
	defer func() { _ = conn.Close() }() // everything has been said by then
	return a.answered(use(client{adminv1.NewAdminServiceClient(conn), jobsv1.NewJobServiceClient(conn)}))
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
	if a.plaintext || (a.caFile == "" && a.certFile == "" && loopback(a.addr)) {
		return insecure.NewCredentials(), nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.caFile != "" {
		pem, err := os.ReadFile(a.caFile)
		if err != nil {
			return nil, usagef("--ca-file: %v", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--ca-file: %s has no certificate in PEM form", a.caFile)
		}
	}
	if a.certFile != "" {
		pair, err := tls.LoadX509KeyPair(a.certFile, a.keyFile)
		if err != nil {
			return nil, usagef("--cert-file: %v", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(c), nil
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}
