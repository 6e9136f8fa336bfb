package controlplane

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/ingress"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/server"
)

// Debug is where HTTP servers of running jobs are reached.
const Debug = "listen.debug"

// makeIngress makes what lets people reach into running jobs.
func (c *ControlPlane) makeIngress(context.Context) error {
	dial, err := c.peerCredentials()
	if err != nil {
		return err
	}
	c.ingress, err = ingress.New(ingress.Options{
		Replica: c.cfg.ReplicaName(), Machines: tunneler{c.dispatcher, c.cfg.ReplicaName()}, Store: c.store,
		Limits: c.cfg.DebugLimits(), Audit: c.audit, Advertise: c.advertised, Dial: []grpc.DialOption{dial},
		Events: ingress.Events{
			SessionOpened:  c.metrics.DebugOpened,
			SessionRefused: func(kind string, code codes.Code) { c.metrics.DebugRefused(kind, code) },
			SessionClosed: func(e ingress.SessionClosed) {
				c.metrics.DebugClosed(e.Kind, e.Code, e.Up, e.Down, e.Duration)
			},
			Unreachable: func(replica string, err error) {
				c.log.Warn("another replica, which has the machine of a job that somebody wants to reach into, can't be reached", "replica", replica, "error", err)
			},
			Trouble: func(op string, err error) {
				c.metrics.StoreFailed(err)
				c.log.Warn("sessions with jobs of other replicas may be refused for a while", "op", op, "error", err)
			},
		},
	})
	return err
}

// debugEndpoints are the listener for HTTP servers of jobs, if there is one.
func (c *ControlPlane) debugEndpoints() ([]server.Endpoint, error) {
	if c.cfg.Listen.Debug == "" {
		return nil, nil
	}
	tls, err := c.apiTLS()
	if err != nil {
		return nil, err
	}
	return []server.Endpoint{server.Streaming(Debug, c.cfg.Listen.Debug, ingress.NewProxy(c.ingress, c.guard), tls)}, nil
}

// advertised is where other replicas reach listen.api of this one; empty: nobody has said.
func (c *ControlPlane) advertised() string {
	if c.cfg.Debug.Advertise != "" {
		return c.cfg.Debug.Advertise
	}
	address := c.Addr(API)
	host, _, err := net.SplitHostPort(address)
	if ip, parseErr := netip.ParseAddr(host); err != nil || parseErr != nil || ip.IsUnspecified() {
		return ""
	}
	return address
}

// ticketed lets another replica's call pass the guard, which knows no replicas: the ticket
// that it shows proves more than a certificate would. One is needed besides where all need
// one.
func (c *ControlPlane) ticketed(guard grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	pass := func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return next(srv, s)
	}
	if c.cfg.Listen.TLS.CAFile != "" {
		_, pass = access.NeedCertificate()
	}
	return func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if info.FullMethod == debugv1.DebugService_Relay_FullMethodName {
			return pass(srv, s, info, next)
		}
		return guard(srv, s, info, next)
	}
}

// tunneler is the dispatcher as the ingress knows it.
type tunneler struct {
	dispatcher *session.Dispatcher
	replica    string
}

// Open implements ingress.Machines.
func (t tunneler) Open(ctx context.Context, job spillway.JobID, target *debugv1.Target) (ingress.Tunnel, error) {
	opened, err := t.dispatcher.OpenTunnel(ctx, job, target)
	switch {
	case errors.Is(err, session.ErrElsewhere):
		return nil, ingress.ErrElsewhere
	case err != nil:
		return nil, err
	}
	return tunnel{opened, t.replica}, nil
}

type tunnel struct {
	*session.Tunnel
	replica string
}

// Where implements ingress.Tunnel.
func (t tunnel) Where() ingress.Where {
	return ingress.Where{Machine: string(t.Machine), Pool: t.Pool, Attempt: t.Attempt, Replica: t.replica}
}
