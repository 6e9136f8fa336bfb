package jobrouter

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/spillway-ci/spillway/gitlab/route"
)

// Options are what a Desk needs, its numbers, and whom it tells. A zero number means
// the default.
type Options struct {
	Leases   Leases        // required
	Book     Book          // required
	GitLab   GitLab        // required
	Tokens   *route.Tokens // required
	Contacts Contacts      // required
	Admit    Admit         // nil: every job is admitted
	Facts    Facts         // nil: there is no other replica
	Events   Events

	// Fronted says that all that runners say to GitLab passes front proxies that put down
	// which jobs they acknowledge (store.ConfirmRouted): one that isn't does not keep its
	// machine for longer than route.ConfirmWithin.
	Fronted bool

	// Replica names this control plane; required.
	Replica string
	// Advertise is where other replicas reach our gRPC listener, host:port. Empty: they
	// can't, and while we poll a token their runners of it get no jobs.
	Advertise string
	// Dial are the options with which other replicas are dialed; at least credentials.
	Dial []grpc.DialOption

	// LongPoll is how long a question is held: 50s. Not longer, because proxies in
	// between end silent calls after a minute; not much shorter, because each end is a
	// new question.
	LongPoll time.Duration
	// RatePerToken bounds the questions to GitLab for one token: 33/s, below its limit of
	// 2000 a minute.
	RatePerToken int
	// PollEvery is the time between two questions that found nothing: 1s. A job waits
	// half of that on average, a GitLab without long polling answers that many questions.
	PollEvery time.Duration
	// HoldPerToken is how many jobs are kept for a token none of whose machines asks, so
	// that a pool at zero is seen to be needed: 0 = none, as where GitLab's lists tell.
	HoldPerToken int
	// KeepFor is how long a job is kept without a machine that takes it: 1h, a few failed
	// boots. Then GitLab fails it and tries it again, a limited number of times.
	KeepFor time.Duration
	// MaxWaiting bounds the questions that are open at once: 20000.
	MaxWaiting int

	// LeaseTTL and RenewEvery are those of a token's lease: 15s and 5s.
	LeaseTTL, RenewEvery time.Duration

	// Now and Dice are the clock and a number in [0, 1); nil: time.Now and math/rand.
	Now  func() time.Time
	Dice func() float64
}

// The defaults of Options.
const (
	DefaultLongPoll     = 50 * time.Second
	DefaultRatePerToken = 33
	DefaultPollEvery    = time.Second
	DefaultKeepFor      = time.Hour
	DefaultMaxWaiting   = 20_000
	DefaultLeaseTTL     = 15 * time.Second
	DefaultRenewEvery   = 5 * time.Second
)

// Limits that are no settings.
const (
	// MaxRatePerToken is GitLab's limit of 2000 a minute, less our burst [1/s].
	MaxRatePerToken = 33
	// MaxKept bounds the jobs without a machine, for each token [jobs]. What is beyond it
	// is left to GitLab.
	MaxKept = 64
	// maxUsed bounds the machines of a token whose last use is remembered [machines].
	maxUsed = 10_000
)

// Times that are no settings.
const (
	// ackWithin is how long GitLab waits for a word about a job that it handed out
	// (Gitlab::Ci::Build::RunnerAckQueue). lastChance is when we stop believing that a
	// word would still be in time.
	ackWithin  = 2 * time.Minute
	lastChance = ackWithin - 10*time.Second
	// renewEvery is how often GitLab is told that a job is still wanted: twice may fail.
	renewEvery = 40 * time.Second
	// renewRetry is how soon that is tried again.
	renewRetry = 10 * time.Second
	// legacyFor is how long another machine is sought for a job that GitLab takes as
	// running because its runner knows no two-phase commit.
	legacyFor = 30 * time.Second
	// storeRetry is how long a job rests after the store failed.
	storeRetry = time.Second
	// barredFor is how long a machine that is ordered to drain isn't asked again whether
	// it still is.
	barredFor = 5 * time.Second
	// sweepEvery is how often the desk looks for what time has done.
	sweepEvery = 250 * time.Millisecond
	// askTimeout bounds a question to GitLab, which may hold it for 50 s.
	askTimeout = 90 * time.Second
	// callTimeout bounds any other call to GitLab and to the store.
	callTimeout = 10 * time.Second
	// admitTimeout bounds the admission of one job: far below ackWithin.
	admitTimeout = 30 * time.Second
	// idleRelease is how long a lease is kept that nobody needs.
	idleRelease = 30 * time.Second
	// leaseRetry is how soon a lease is tried again after the store failed or its holder
	// could not be reached.
	leaseRetry = time.Second
	// jobMargin is what a job may take beyond its timeout (after_script, upload of
	// artifacts), before its booking ends by itself.
	jobMargin = 2 * time.Hour
	// longPollJitter is the part of LongPoll by which calls end early, so that a fleet
	// that came together doesn't stay together.
	longPollJitter = 0.1
)

func (o Options) withDefaults() Options {
	o.LongPoll = cmp.Or(o.LongPoll, DefaultLongPoll)
	o.RatePerToken = cmp.Or(o.RatePerToken, DefaultRatePerToken)
	o.PollEvery = cmp.Or(o.PollEvery, DefaultPollEvery)
	o.KeepFor = cmp.Or(o.KeepFor, DefaultKeepFor)
	o.MaxWaiting = cmp.Or(o.MaxWaiting, DefaultMaxWaiting)
	o.LeaseTTL = cmp.Or(o.LeaseTTL, DefaultLeaseTTL)
	o.RenewEvery = cmp.Or(o.RenewEvery, DefaultRenewEvery)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Dice == nil {
		o.Dice = rand.Float64
	}
	return o
}

// Validate reports every mistake, joined.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.Leases == nil || o.Book == nil || o.GitLab == nil || o.Tokens == nil || o.Contacts == nil,
		"a job router needs leases, a book, a GitLab, tokens and contacts")
	check(o.Replica == "" || strings.ContainsAny(o.Replica, "@ "), "replica name %q: use at least one character, without @ and blanks", o.Replica)
	if o.Advertise != "" {
		_, _, err := net.SplitHostPort(o.Advertise)
		check(err != nil, "advertised address %q: use host:port", o.Advertise)
	}
	check(o.LongPoll < time.Second || o.LongPoll > time.Hour, "long poll of %s: use 1s to 1h", o.LongPoll)
	check(o.RatePerToken < 1 || o.RatePerToken > MaxRatePerToken, "%d questions a second for each token: use 1 to %d, GitLab allows 2000 a minute", o.RatePerToken, MaxRatePerToken)
	check(o.PollEvery < 10*time.Millisecond, "a question every %s: use 10ms or more", o.PollEvery)
	check(o.HoldPerToken < 0 || o.HoldPerToken > MaxKept, "%d jobs held for each token: use 0 to %d", o.HoldPerToken, MaxKept)
	check(o.KeepFor < 0 || o.MaxWaiting < 0, "keep_for and the bound on open questions must not be negative")
	check(o.RenewEvery <= 0 || o.LeaseTTL < 2*o.RenewEvery || o.LeaseTTL <= leaseMargin, "a lease of %s renewed every %s: it must be at least twice that and more than %s", o.LeaseTTL, o.RenewEvery, leaseMargin)
	return errors.Join(errs...)
}

// holder is how we are named in leases.
func (o *Options) holder() string { return o.Replica + "@" + o.Advertise }

// addressOf is where a lease's holder can be reached.
func addressOf(holder string) (address string, ok bool) {
	_, address, ok = strings.Cut(holder, "@")
	return address, ok && address != ""
}

func leaseName(hash string) string { return "gitlab/token/" + hash }
