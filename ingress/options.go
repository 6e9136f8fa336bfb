package ingress

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
	"github.com/spillway-ci/spillway/router"
)

// Limits are those of sessions; a zero means the default.
type Limits struct {
	IdleTimeout time.Duration // without a byte either way
	MaxDuration time.Duration
	MaxBytes    int64 // both ways together [bytes]
	MaxSessions int   // of a replica
	MaxPerJob   int   // sessions; of a replica
}

// The defaults, and why they are not smaller and not larger.
const (
	// DefaultIdleTimeout: smaller ends a shell while its owner reads what it said; larger
	// keeps forgotten ones open, which anybody at that desk may use.
	DefaultIdleTimeout = 10 * time.Minute
	// DefaultMaxDuration is as long as most jobs may run.
	DefaultMaxDuration = time.Hour
	// DefaultMaxBytes lets a core dump through, and no copy of a registry.
	DefaultMaxBytes = 1 << 30
	// DefaultMaxSessions: each holds a few buffers and two streams.
	DefaultMaxSessions = 256
	// DefaultMaxPerJob: a page in a browser opens a dozen connections.
	DefaultMaxPerJob = 32
)

func (l Limits) withDefaults() Limits {
	l.IdleTimeout = cmp.Or(l.IdleTimeout, DefaultIdleTimeout)
	l.MaxDuration = cmp.Or(l.MaxDuration, DefaultMaxDuration)
	l.MaxBytes = cmp.Or(l.MaxBytes, DefaultMaxBytes)
	l.MaxSessions = cmp.Or(l.MaxSessions, DefaultMaxSessions)
	l.MaxPerJob = cmp.Or(l.MaxPerJob, DefaultMaxPerJob)
	return l
}

// Machines opens tunnels to machines that are connected to this replica.
type Machines interface {
	// Open wraps ErrElsewhere if no such machine has the job. Other errors are statuses.
	Open(ctx context.Context, job spillway.JobID, target *debugv1.Target) (Tunnel, error)
}

// Tunnel is an open way to a target. Send and Recv may be called from one goroutine each.
type Tunnel interface {
	Send(*debugv1.Frame) error     // io.EOF: it takes no more
	Recv() (*debugv1.Frame, error) // io.EOF: all was said
	// Over is closed when it has ended by itself; Cause is why then.
	Over() <-chan struct{}
	Cause() error
	// Close ends it. err is why; nil: in order.
	Close(err error)
	// Where says what is at the other end.
	Where() Where
}

// Where is where a job runs.
type Where struct {
	Machine string
	Pool    string
	Attempt int
	Replica string
}

// Store is what replicas share.
type Store interface {
	GetMany(ctx context.Context, ids []spillway.JobID) ([]*spillway.JobRecord, error)
	// Machine returns the record of a pool's machine.
	Machine(ctx context.Context, pool string, id spillway.MachineID) (router.Machine, bool, error)
	PutBoard(ctx context.Context, name string, epoch uint64, data []byte, ttl time.Duration) error
	Board(ctx context.Context, name string) (data []byte, found bool, err error)
	PublishFact(ctx context.Context, topic string, data []byte) error
	Facts(ctx context.Context, topic string) (<-chan []byte, error)
}

// Options are what a Service is made from.
type Options struct {
	Replica  string
	Machines Machines
	Store    Store
	Limits   Limits
	Audit    access.Audit
	// Advertise returns where other replicas reach our DebugService, HOST:PORT; empty, or
	// nil: they can't. It is asked when the Service runs.
	Advertise func() string
	// Dial are for connections to other replicas: their credentials.
	Dial   []grpc.DialOption
	Events Events
}

// Events is told what happens; any may be nil.
type Events struct {
	SessionOpened  func(kind string)
	SessionClosed  func(SessionClosed)
	SessionRefused func(kind string, code codes.Code)
	Trouble        func(op string, err error)
	// Unreachable tells: the way to another replica broke, or never was.
	Unreachable func(replica string, err error)
}

// SessionClosed tells: a session has ended.
type SessionClosed struct {
	Kind      string // exec | port | socket | http
	Code      codes.Code
	Up, Down  int64 // bytes to the job and from it
	Duration  time.Duration
	ForOthers bool // it was for a person at another replica
}

func (o *Options) validate() error {
	if o.Replica == "" || o.Machines == nil || o.Store == nil || o.Audit == nil {
		return fmt.Errorf("ingress: %w: Options lack a Replica, Machines, Store or Audit", spillway.ErrInvalid)
	}
	return nil
}
