package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway/internal/tlsfiles"
)

// Limits of a gRPC listener. grpc-go's own are no limit at all (streams), far too
// large (headers, connection timeout) or cut off honest clients (keepalive).
const (
	DefaultMaxMessageBytes = 256 << 10 // from a runner: a result with its tail of output
	maxStreams             = 1_000     // at once on one connection
	maxGRPCHeaderBytes     = 16 << 10
	connectionTimeout      = 10 * time.Second // TLS and HTTP/2 handshakes
	keepaliveEvery         = 30 * time.Second // our pings
	keepaliveTimeout       = 20 * time.Second
	keepaliveMin           = 20 * time.Second // GitLab Runner pings more often than grpc-go's 5 min
	connectionAge          = time.Hour        // so that streams spread over new replicas
	connectionGrace        = 10 * time.Minute
)

// GRPCOptions are what differs between listeners.
type GRPCOptions struct {
	TLS             *tls.Config // nil: none; else of Certificates
	MaxMessageBytes int         // 0 = DefaultMaxMessageBytes
	Reflection      bool        // lets grpcurl and the like ask what there is; never for runners
	// Panicked is told of a panic in a handler, which the caller sees as Internal.
	Panicked func(method string, value any, stack []byte)
	// Also are more options, applied last: a listener for thousands of idle runners
	// wants smaller buffers than one for pushed jobs.
	Also []grpc.ServerOption
}

// NewGRPCServer makes a server with limits on everything and with the services
// that register adds.
func NewGRPCServer(o GRPCOptions, register ...func(grpc.ServiceRegistrar)) *grpc.Server {
	if o.MaxMessageBytes == 0 {
		o.MaxMessageBytes = DefaultMaxMessageBytes
	}
	recovers := recovery{o.Panicked}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(o.MaxMessageBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxGRPCHeaderBytes),
		grpc.ConnectionTimeout(connectionTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: keepaliveEvery, Timeout: keepaliveTimeout,
			MaxConnectionAge: connectionAge, MaxConnectionAgeGrace: connectionGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMin, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(recovers.unary),
		grpc.ChainStreamInterceptor(recovers.stream),
	}
	if o.TLS != nil {
		options = append(options, grpc.Creds(tlsfiles.ServerCredentials(o.TLS)))
	}
	s := grpc.NewServer(append(options, o.Also...)...)
	for _, r := range register {
		r(s)
	}
	if o.Reflection {
		reflection.Register(s)
	}
	return s
}

// recovery turns a panic of one call into an error of that call. The value may
// hold anything, so the caller is not shown it.
type recovery struct {
	told func(method string, value any, stack []byte)
}

func (r recovery) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer r.recover(info.FullMethod, &err)
	return next(ctx, req)
}

func (r recovery) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer r.recover(info.FullMethod, &err)
	return next(srv, s)
}

func (r recovery) recover(method string, err *error) {
	value := recover()
	if value == nil {
		return
	}
	*err = status.Error(codes.Internal, fmt.Sprintf("%s failed in an unforeseen way; the control plane's log has the details", method))
	if r.told != nil {
		r.told(method, value, debug.Stack())
	}
}
