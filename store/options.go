package store

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The defaults of Options.
const (
	DefaultPrefix = "spw"
	// DefaultTimeout is how long one operation may take in all. It is well under a
	// lease (15 s), so that a holder still knows in time that it can't renew; not
	// smaller, because a Redis failover takes one to two seconds.
	DefaultTimeout = 2 * time.Second
	// DefaultMaxQueued bounds the jobs that are pending or claimed [jobs]. At about
	// 1 KiB each, a million is what a Redis of 1–2 GiB holds.
	DefaultMaxQueued = 1_000_000
	// DefaultFinishedTTL is how long the record of an ended job can be asked for.
	DefaultFinishedTTL = time.Hour
	// DefaultMaxFinished bounds those records [jobs]. Each may hold 64 KiB of output,
	// so that the worst case is 1.3 GiB; a usual record is below 1 KiB.
	DefaultMaxFinished = 20_000
	// DefaultQuarantineTTL is how long a job stays in quarantine: what broke a fleet at
	// night must still be there in the morning (not smaller); what nobody has looked at
	// for a day, nobody waits for (not larger).
	DefaultQuarantineTTL = 24 * time.Hour
	// MaxQuarantined bounds the jobs of one class in quarantine [jobs]; the oldest go
	// first. They are few machines' work: each has cost max_attempts of them.
	MaxQuarantined = 100
	// DefaultMachineTTL is how long a machine stays registered without being put
	// again. It is long on purpose: silence alone proves nothing, and the scaler
	// judges it by HeardAt.
	DefaultMachineTTL = 24 * time.Hour
)

// Options says which Redis to use and how much to keep there. The zero value of
// a field means its default.
type Options struct {
	// Addrs is HOST:PORT of one server, of the Sentinels (with MasterName), or of
	// some nodes of a Cluster (with Cluster).
	Addrs      []string
	MasterName string // Sentinel's name of the master
	Cluster    bool
	Database   int // not with Cluster

	Username, Password                 string
	SentinelUsername, SentinelPassword string
	// TLS is asked for each new connection, so that a replaced certificate is taken up;
	// nil: no TLS. Without a ServerName the address is whom the certificate must be for.
	TLS func() *tls.Config

	Prefix      string // of every key and channel
	Timeout     time.Duration
	PoolSize    int // connections; 0: 10 for each CPU
	MaxQueued   int
	FinishedTTL time.Duration
	MaxFinished int
	MachineTTL  time.Duration

	QuarantineTTL time.Duration
}

func (o Options) withDefaults() Options {
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.MaxQueued = cmp.Or(o.MaxQueued, DefaultMaxQueued)
	o.FinishedTTL = cmp.Or(o.FinishedTTL, DefaultFinishedTTL)
	o.MaxFinished = cmp.Or(o.MaxFinished, DefaultMaxFinished)
	o.MachineTTL = cmp.Or(o.MachineTTL, DefaultMachineTTL)
	o.QuarantineTTL = cmp.Or(o.QuarantineTTL, DefaultQuarantineTTL)
	return o
}

// validate reports every problem of o, joined.
func (o Options) validate() error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("store: "+format, args...))
		}
	}
	check(len(o.Addrs) == 0, "no address: name a Redis server as HOST:PORT, or use the embedded store")
	check(len(o.Addrs) > 1 && !o.Cluster && o.MasterName == "", "%d addresses: set Cluster, or MasterName for Sentinel", len(o.Addrs))
	check(o.Cluster && o.MasterName != "", "a Cluster has no Sentinels: set Cluster or MasterName, not both")
	check(o.Cluster && o.Database != 0, "a Cluster has only database 0")
	// Braces would change which part of a key decides its slot.
	check(strings.ContainsAny(o.Prefix, "{} \r\n"), "prefix %q: leave out braces and blanks", o.Prefix)
	check(o.Timeout < 0 || o.FinishedTTL < 0 || o.MachineTTL < 0 || o.QuarantineTTL < 0, "a duration is negative")
	check(o.MaxQueued < 0 || o.MaxFinished < 0 || o.PoolSize < 0, "a bound is negative")
	return errors.Join(errs...)
}
