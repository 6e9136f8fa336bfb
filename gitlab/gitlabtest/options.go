package gitlabtest

import "time"

// Times and limits of GitLab, as it ships.
const (
	// DefaultAckWithin is how long a job that was given out waits for its runner's
	// word (RunnerAckQueue::RUNNER_ACK_QUEUE_EXPIRY_TIME).
	DefaultAckWithin = 2 * time.Minute
	// DefaultAckRetries is how often a job that nobody acknowledged is tried again.
	DefaultAckRetries = 2
	// DefaultRequestsPerMinute bounds POST /jobs/request per runner token [requests].
	DefaultRequestsPerMinute = 2000
	// DefaultMaxComplexity bounds a GraphQL query of a user; an administrator gets 50 more.
	DefaultMaxComplexity = 250
	// DefaultPerPage and MaxPerPage are the sizes of a REST page; MaxPerPage is
	// GraphQL's too [items].
	DefaultPerPage = 20
	MaxPerPage     = 100
	// MaxRequestBytes bounds a body of POST /jobs/request, as Workhorse does [bytes].
	MaxRequestBytes = 32 << 10
	// MaxPatchBytes bounds one piece of a trace [bytes].
	MaxPatchBytes = 1 << 20
	// MaxTraceBytes bounds a trace; a job with more of it fails [bytes].
	MaxTraceBytes = 16 << 20
	// MaxCalls bounds the call log; the oldest are forgotten [calls].
	MaxCalls = 500_000
	// MaxBodyBytes bounds any other body [bytes].
	MaxBodyBytes = 1 << 20
	// HugeBytes is the size of an answer that [Huge] gives [bytes].
	HugeBytes = 64 << 20
)

// onlineWithin is how long GitLab calls a runner online after it was heard of:
// long enough to be no sign of life.
const onlineWithin = 2 * time.Hour

// Options are what differs between GitLabs. The zero value is GitLab as it ships.
type Options struct {
	Now func() time.Time // nil: time.Now
	// LongPoll is how long POST /jobs/request is held when its last_update is the
	// newest: Workhorse's apiCiLongPollingDuration. 0 = answered at once.
	LongPoll time.Duration
	// RequestsPerMinute bounds POST /jobs/request per token: 0 =
	// DefaultRequestsPerMinute, negative = no limit.
	RequestsPerMinute int
	AckWithin         time.Duration // 0 = DefaultAckWithin
	// AckRetries: 0 = DefaultAckRetries, negative = none.
	AckRetries    int
	MaxComplexity int // 0 = DefaultMaxComplexity
	// AcceptAnyTrace: a final state is accepted although the trace's checksum is
	// wrong, as a GitLab that keeps no live traces does. Otherwise it is 412, and the
	// runner has to send the trace again.
	AcceptAnyTrace bool
	// TraceEvery goes to runners as X-GitLab-Trace-Update-Interval, in whole seconds;
	// 0 = not sent.
	TraceEvery time.Duration
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.RequestsPerMinute == 0 {
		o.RequestsPerMinute = DefaultRequestsPerMinute
	}
	if o.AckWithin == 0 {
		o.AckWithin = DefaultAckWithin
	}
	if o.AckRetries == 0 {
		o.AckRetries = DefaultAckRetries
	}
	if o.MaxComplexity == 0 {
		o.MaxComplexity = DefaultMaxComplexity
	}
	return o
}
