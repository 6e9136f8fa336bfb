package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/agent/notices"
)

// The errors that Run ends with, for errors.Is. It returns nil when the machine
// has left in order.
var (
	// ErrOptions: an option is missing or wrong; the text names all of them.
	ErrOptions = errors.New("invalid options")
	// ErrUnauthenticated: the router does not know the token. Asking again would
	// not help, and a fleet of machines that do is an attack.
	ErrUnauthenticated = errors.New("the router refused the runner token")
	// ErrDrainTimeout: jobs were cut short because they did not end in time.
	ErrDrainTimeout = errors.New("jobs were cut short at the end of the drain timeout")
)

// Limits and times of one machine.
const (
	// DefaultDrainTimeout is how long jobs may go on after a drain by signal.
	DefaultDrainTimeout = 300 * time.Second
	// DefaultStopGrace is the time between SIGTERM and SIGKILL for a job. Shorter
	// leaves docker and the like no time to put things in order, longer keeps the
	// place from the next job.
	DefaultStopGrace = 10 * time.Second
	// MaxMessageBytes bounds one message of the stream, either way [bytes].
	MaxMessageBytes = 256 << 10
	// MaxUnacked bounds the results that the router has not acknowledged [jobs]:
	// each may hold 64 KiB of output. A machine that has more takes no more jobs.
	MaxUnacked = 100
	// MaxIDBytes bounds a machine id and an instance id [bytes].
	MaxIDBytes = 128
	// MaxVersionBytes bounds the version [bytes].
	MaxVersionBytes = 64
	// MaxLabels bounds the labels that are given [labels]; some of the router's limit are
	// the agent's own. MaxLabelNameBytes and MaxLabelValueBytes bound each [bytes].
	MaxLabels          = 32
	MaxLabelNameBytes  = 63
	MaxLabelValueBytes = 255
)

// Options say what machine this is and how it reaches its router.
type Options struct {
	Router string // host:port
	// Token returns the runner token. It is asked at each connection, so that a
	// replaced token is taken up.
	Token func() (string, error)
	// TLS returns how the router proves who it is. It is asked at each connection, so
	// that replaced certificates are taken up. nil: plaintext, which is refused for any
	// address but a loopback one, since the token and the jobs' secrets would be readable
	// on the way.
	TLS func() *tls.Config
	// Dial replaces the network, for tests; nil normally.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	MachineID  string // one per process; empty: a random one
	InstanceID string // the provider's id of the instance this runs on
	Capacity   int    // jobs at once
	Version    string // of this program
	// Labels say where the machine is, for the choice of machines: zone, distance.
	Labels  map[string]string
	WorkDir string // existing directory for the jobs' private ones; empty: the system's temporary one
	JobLogs bool   // keep each job's whole output in its directory while it runs

	// Debug allows sessions with the jobs that run here, for those whom the router lets: a
	// command as the jobs' user, the ports of this machine's loopback, the jobs' sockets.
	Debug bool

	// Drain, once closed, has the machine take no more jobs and leave when those it
	// has have ended, after DrainTimeout at the latest. nil: never.
	Drain        <-chan struct{}
	DrainTimeout time.Duration // 0: DefaultDrainTimeout
	StopGrace    time.Duration // 0: DefaultStopGrace

	// Notices delivers what the cloud says of the instance that this runs on; nil:
	// nothing is heard.
	Notices <-chan notices.Notice
	// Health delivers why this machine is broken, at most 256 bytes, and an empty text
	// when it is not any more. nil: it is well.
	Health <-chan string

	// Beside is the runner that this machine speaks for instead of taking jobs itself;
	// nil: it takes jobs. Capacity bounds what that runner says it can take; 0: nothing
	// does.
	Beside Beside

	Log *slog.Logger // nil: silent
}

// withDefaults fills what was left out. ErrOptions names every mistake.
func (o Options) withDefaults() (Options, error) {
	o.MachineID = cmp.Or(o.MachineID, rand.Text())
	o.Version = cmp.Or(o.Version, "unknown")
	o.WorkDir = cmp.Or(o.WorkDir, os.TempDir())
	o.DrainTimeout = cmp.Or(o.DrainTimeout, DefaultDrainTimeout)
	o.StopGrace = cmp.Or(o.StopGrace, DefaultStopGrace)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, o.validate()
}

func (o *Options) validate() error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	host, _, err := net.SplitHostPort(o.Router)
	check(err != nil, "router %q: use host:port", o.Router)
	check(err == nil && o.TLS == nil && !isLoopback(host),
		"plaintext to %q: the token and the jobs' secrets would be readable on the way, so it is for loopback addresses only", o.Router)
	check(o.Token == nil, "no runner token")
	check(!shortText(o.MachineID, MaxIDBytes), "machine id: use at most %d printable ASCII characters without blanks", MaxIDBytes)
	check(!shortText(o.InstanceID, MaxIDBytes), "instance id: use at most %d printable ASCII characters without blanks", MaxIDBytes)
	check(!shortText(o.Version, MaxVersionBytes), "version: use at most %d printable ASCII characters without blanks", MaxVersionBytes)
	check(len(o.Labels) > MaxLabels, "%d labels, at most %d are allowed", len(o.Labels), MaxLabels)
	for name, value := range o.Labels {
		check(name == "" || !shortText(name, MaxLabelNameBytes) || !shortText(value, MaxLabelValueBytes),
			"label %.80q: use at most %d (name) and %d (value) printable ASCII characters without blanks", name, MaxLabelNameBytes, MaxLabelValueBytes)
	}
	least := 1
	if o.Beside != nil {
		least = 0 // what the runner says
	}
	check(o.Capacity < least || o.Capacity > spillway.MaxCapacityPerInst, "capacity %d: use %d to %d jobs", o.Capacity, least, spillway.MaxCapacityPerInst)
	check(o.DrainTimeout < 0, "drain timeout %s is negative", o.DrainTimeout)
	check(o.StopGrace < 0, "stop grace %s is negative", o.StopGrace)
	info, err := os.Stat(o.WorkDir)
	check(err != nil || !info.IsDir(), "work directory %q: it must exist", o.WorkDir)
	return errors.Join(errs...)
}

// shortText reports whether the router takes s as an id.
func shortText(s string, limit int) bool {
	if len(s) > limit {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// isLoopback reports whether host can only be this machine. A name other than
// localhost is not asked for: what it means may change between check and use.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
