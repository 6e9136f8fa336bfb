package minirunner

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"
)

// Times are how long things take. They are gitlab-runner's; the names in
// parentheses are there.
type Times struct {
	Check           time.Duration // between two requests for a job (common.CheckInterval)
	Discovery       time.Duration // for which an answer of discovery is believed (discoveryTTL)
	BreakerGrace    time.Duration // that a router must have failed for (routerBreakerFailureGrace)
	BreakerOpen     time.Duration // without it then (routerBreakerOpenTimeout)
	Unhealthy       time.Duration // off after three unhealthy answers (DefaultUnhealthyInterval)
	RetryMin        time.Duration // first wait before a call is made again (backOffMinDelay)
	RetryMax        time.Duration // longest one (backOffMaxDelay)
	Update          time.Duration // between two pieces of a trace (DefaultUpdateInterval)
	Touch           time.Duration // without output until GitLab is told that the job runs (MinTraceForceSendInterval)
	FinalRetry      time.Duration // first wait before the end is reported again
	CancelGrace     time.Duration // between SIGTERM and SIGKILL for a script
	FinalUpdateMost time.Duration // that an aborted job may take to report
}

// GitLabTimes are the times that gitlab-runner ships with.
func GitLabTimes() Times {
	return Times{
		Check: 3 * time.Second, Discovery: time.Hour, BreakerGrace: 5 * time.Second, BreakerOpen: 30 * time.Second,
		Unhealthy: time.Hour, RetryMin: 100 * time.Millisecond, RetryMax: time.Minute, Update: 3 * time.Second,
		Touch: 30 * time.Second, FinalRetry: time.Second, CancelGrace: 10 * time.Second, FinalUpdateMost: 30 * time.Second,
	}
}

// leastFinalUpdate is what an aborted job may take to report however fast its runner is
// otherwise: a busy machine is not faster, and what is not reported runs for ever.
const leastFinalUpdate = 10 * time.Second

// Scaled is t with every time multiplied: by 0.01 for a runner that is a hundred
// times as fast. FinalUpdateMost, which nobody waits for where GitLab answers, is left
// long enough.
func (t Times) Scaled(by float64) Times {
	least := min(t.FinalUpdateMost, leastFinalUpdate)
	for _, d := range []*time.Duration{
		&t.Check, &t.Discovery, &t.BreakerGrace, &t.BreakerOpen, &t.Unhealthy, &t.RetryMin, &t.RetryMax,
		&t.Update, &t.Touch, &t.FinalRetry, &t.CancelGrace, &t.FinalUpdateMost,
	} {
		*d = max(time.Duration(float64(*d)*by), time.Millisecond)
	}
	t.FinalUpdateMost = max(t.FinalUpdateMost, least)
	return t
}

// Options are a runner's config.toml.
type Options struct {
	URL      string // of GitLab, or of what stands before it
	Token    string // of the runner
	SystemID string // "" = a random one
	Name     string
	Version  string // that it says it has; "" = 19.4.0
	Executor string // "" = shell
	Labels   map[string]string
	// Concurrent is the most jobs at once; 0 = 1.
	Concurrent int
	// RequestConcurrency is the most requests for a job at once; 0 = 1.
	RequestConcurrency int
	Router             bool // FF_USE_JOB_ROUTER
	// OldRPC calls the service by the name that 18.8 used.
	OldRPC bool
	// Legacy: it does not say two_phase_job_commit, as before 18.5.
	Legacy bool
	// Features are features beyond its own, or, with false, some of those not.
	Features map[string]bool
	CAFile   string // of certificates to trust beside the system's
	WorkDir  string // for the jobs' directories; "" = the system's
	Times    Times  // zero: GitLabTimes
	Log      *slog.Logger
}

// ErrOptions says that an option is missing or wrong.
var ErrOptions = errors.New("invalid options")

func (o Options) withDefaults() (Options, error) {
	var errs []error
	if u, err := url.Parse(o.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		errs = append(errs, fmt.Errorf("%w: the URL must be http or https", ErrOptions))
	}
	if strings.TrimSpace(o.Token) == "" {
		errs = append(errs, fmt.Errorf("%w: there is no token", ErrOptions))
	}
	if o.Concurrent < 0 || o.RequestConcurrency < 0 {
		errs = append(errs, fmt.Errorf("%w: a number is negative", ErrOptions))
	}
	o.URL = strings.TrimRight(o.URL, "/")
	o.SystemID = cmp.Or(o.SystemID, "r_"+strings.ToLower(rand.Text())[:12])
	o.Version = cmp.Or(o.Version, "19.4.0")
	o.Executor = cmp.Or(o.Executor, "shell")
	o.Concurrent = max(o.Concurrent, 1)
	o.RequestConcurrency = max(o.RequestConcurrency, 1)
	if o.Times == (Times{}) {
		o.Times = GitLabTimes()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, errors.Join(errs...)
}

// short is what gitlab-runner calls a runner by in its metrics: some of its token's
// letters.
func (o Options) short() string {
	token := strings.TrimPrefix(o.Token, "glrt-")
	return token[:min(len(token), shortTokenLetters)]
}

const shortTokenLetters = 9
