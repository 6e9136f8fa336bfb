package session

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Limits of a listener that runners and pushers reach. gRPC's own defaults are
// those of a trusted network: unlimited streams, 16 MiB of headers, 120 s for a
// handshake, connections for ever.
const (
	// MaxStreamsPerConnection bounds the streams of one connection. A runner has
	// one; a proxy in front of many multiplexes them.
	MaxStreamsPerConnection = 1024
	// MaxHeaderBytes bounds the headers of one call [bytes]: a token and some
	// tracing fit.
	MaxHeaderBytes = 16 << 10
	// MaxMessageBytes bounds one received message [bytes]: a job's script and
	// environment, or a result with its 64 KiB of output, fit.
	MaxMessageBytes = 256 << 10
	// HandshakeTimeout bounds the time until a connection has finished TLS and
	// HTTP/2 settings.
	HandshakeTimeout = 10 * time.Second
	// MinPingInterval is how often a client may ping. GitLab Runner pings every 20 s
	// and more; gRPC's own 5 min would cut it off.
	MinPingInterval = 20 * time.Second
	// PingAfter is the silence after which the server asks whether the other end is
	// still there, PingTimeout how long it waits for the answer. Both within the
	// 45 s after which a machine counts as silent.
	PingAfter   = 30 * time.Second
	PingTimeout = 10 * time.Second
	// MaxConnectionAge makes every client look for a (new) replica now and then, and
	// pick up new certificates; streams may go on for ConnectionAgeGrace. gRPC adds
	// 10 % jitter.
	MaxConnectionAge   = time.Hour
	ConnectionAgeGrace = 10 * time.Minute

	// A runner is idle nearly always: small buffers per connection halve its memory.
	// 1 KiB for reading still takes several runner messages with one system call.
	readBufferBytes = 1 << 10
	// Windows that don't grow bound what one stream can make the server hold, and
	// spare gRPC's measuring of the path, which costs a ping for nearly each small
	// message. A whole message fits into a stream's window.
	streamWindowBytes     = MaxMessageBytes
	connectionWindowBytes = 1 << 20

	writeBufferBytes = 4 << 10
	// headerTableBytes is what a connection remembers of headers, to be told less the next
	// time: a runner has one call, so that there is no next time.
	headerTableBytes = 0
)

// ServerOptions is what a gRPC server needs that serves RunnerService or
// JobService.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(MaxStreamsPerConnection),
		grpc.MaxHeaderListSize(MaxHeaderBytes),
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.ConnectionTimeout(HandshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: MinPingInterval, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: PingAfter, Timeout: PingTimeout,
			MaxConnectionAge: MaxConnectionAge, MaxConnectionAgeGrace: ConnectionAgeGrace,
		}),
		grpc.StaticStreamWindowSize(streamWindowBytes),
		grpc.StaticConnWindowSize(connectionWindowBytes),
		grpc.ReadBufferSize(readBufferBytes),
		grpc.HeaderTableSize(headerTableBytes),
		grpc.WriteBufferSize(writeBufferBytes), // shared by default: only a connection that writes has one
	}
}

// SecureOptions come after ServerOptions where there is TLS: it reads whole records into
// a buffer of its own, and another one in front of that saves no system call.
func SecureOptions() []grpc.ServerOption { return []grpc.ServerOption{grpc.ReadBufferSize(0)} }
