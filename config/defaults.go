package config

import "time"

// The defaults, and why they are not smaller and not larger. Each is a setting;
// example.yaml shows them all.
const (
	// DefaultRunners, DefaultAPI and DefaultMetrics are where the control plane
	// listens. Loopback, since nothing that is reachable from elsewhere should come
	// to be by default.
	DefaultRunners = "127.0.0.1:7700"
	DefaultAPI     = "127.0.0.1:7701"
	DefaultMetrics = "127.0.0.1:7702"

	// DefaultTick is how often a pool is looked at when nobody pokes it. Smaller
	// spends the cloud's API budget without being faster, since changes of demand
	// poke the loop anyway; larger lets a missed poke and an instance that ended by
	// itself go unseen for longer than a job takes to be annoying.
	DefaultTick = 5 * time.Second

	// DefaultDebounce collects pokes. Smaller turns a burst of 1,000 jobs into
	// dozens of provider calls; larger is felt by a single job.
	DefaultDebounce = 5 * time.Millisecond

	// DefaultPending ends a job that waits. Smaller fails jobs that a weekend's
	// backlog would have served; larger than GitLab's own day keeps jobs that
	// GitLab has dropped.
	DefaultPending = 24 * time.Hour

	// DefaultUnmatched ends a job that no pool can take. Smaller leaves no time to
	// mend a tag or add a pool; larger than GitLab's own hour for stuck jobs lets
	// its owner wait for nothing.
	DefaultUnmatched = time.Hour

	// DefaultAssign is how long a machine may take to accept a job. Smaller takes
	// jobs back from machines that only swap or start up; larger holds a job on a
	// dead connection while other machines are free. It is well below the time
	// after which the machine itself counts as silent.
	DefaultAssign = 30 * time.Second

	// DefaultHeartbeatEvery: smaller costs 9,000 idle runners more messages than
	// their jobs do; larger makes every judgement that rests on heartbeats slower.
	DefaultHeartbeatEvery = 15 * time.Second

	// DefaultSilent is three heartbeats. Smaller declares a machine silent for one
	// lost packet; larger counts on dead machines for demand that is real.
	DefaultSilent = 45 * time.Second

	// DefaultCapacityPerInstance is one job. More would let jobs share a machine
	// that nobody said may be shared.
	DefaultCapacityPerInstance = 1

	// DefaultMax is how many instances a pool may have. Smaller makes the first
	// busy day a queue; larger lets a mistake in a pipeline become a bill before
	// anybody has looked.
	DefaultMax = 10

	// DefaultIdleTime is how long an instance stays idle before it goes. Smaller
	// boots again what was just ended between two stages of a pipeline; larger pays
	// for machines that wait for nothing.
	DefaultIdleTime = 10 * time.Minute

	// DefaultMaxRemovalsPerTick: smaller makes a large pool pay for hours after a
	// peak; larger lets one wrong view end a large part of a pool at once.
	DefaultMaxRemovalsPerTick = 10

	// DefaultPercentBudget is no limit: idle_time already damps, and a budget on top
	// slows the honest case. Smaller values are for fleets where a wrong removal is
	// dearer than idle machines.
	DefaultPercentBudget = 100

	// DefaultStep is what the alarm-and-Lambda rule started with (need: step only).
	DefaultStep = 1

	// DefaultStepWait is how long a pool stays below the threshold before it shrinks
	// (need: step only). Smaller hunts between two pipelines; larger is idle_time
	// paid twice.
	DefaultStepWait = 15 * time.Minute

	// DefaultRegisterTimeout is how long an instance may boot. Smaller ends
	// instances with a slow image while they still install; larger keeps paying for
	// one that will never register, and keeps demand waiting for it.
	DefaultRegisterTimeout = 10 * time.Minute

	// DefaultSilentTimeout is when a silent machine may be removed, if a second
	// source agrees. Smaller ends machines during an outage of the network, with
	// their jobs; larger pays for the dead.
	DefaultSilentTimeout = 30 * time.Minute
	// DefaultCountEvery is how often a metric is read: clouds keep one value a minute.
	DefaultCountEvery = time.Minute

	// DefaultGitLab and DefaultJobRouter are where GitLab's webhooks and its runners
	// are listened to, if there is a gitlab section.
	DefaultGitLab    = "127.0.0.1:7703"
	DefaultJobRouter = "127.0.0.1:7704"

	// DefaultJobsEvery is how often GitLab is asked for its jobs. Webhooks tell of each
	// at once; smaller spends the API's budget, larger is how long a lost webhook goes
	// unnoticed.
	DefaultJobsEvery = 10 * time.Second
	// DefaultRequestsPerMinute is our share of GitLab's API. Many instances limit
	// authenticated calls to some 600 a minute; a listing of 100,000 jobs is 1,000.
	DefaultRequestsPerMinute = 300
	// DefaultLongPoll is what GitLab itself holds a runner's question for (workhorse's
	// apiCiLongPollingDuration of 50 s); a runner has been seen to wait 75 s.
	DefaultLongPoll = 50 * time.Second
	// DefaultHoldPerToken is how many jobs are kept for a pool at zero: one is enough to
	// know that there is work, and each more is a job that nobody else can take.
	DefaultHoldPerToken = 1
	// DefaultRatePerToken is GitLab's limit of 2,000 job requests a minute and token.
	DefaultRatePerToken = 33

	// DefaultMetricsPort, DefaultMetricsPath and DefaultMetricsEvery are where GitLab
	// Runner's documentation has its metrics, and how often they are read.
	DefaultMetricsPort  = 9252
	DefaultMetricsPath  = "/metrics"
	DefaultMetricsEvery = 15 * time.Second

	// DefaultLogLevel: info has only what changed. debug has each tick.
	DefaultLogLevel  = "info"
	DefaultLogFormat = "text"

	// SecondLook is fixed: what lies between the acknowledgement of a drain and the
	// second look at the machine. Smaller misses a job that was on its way; larger
	// only delays.
	SecondLook = 2 * time.Second
)

func defaultConfig() Config {
	return Config{
		Listen: Listen{
			Runners:          DefaultRunners,
			API:              DefaultAPI,
			Metrics:          DefaultMetrics,
			InsecureLoopback: true,
		},
		Tick:        DefaultTick,
		Debounce:    DefaultDebounce,
		Log:         Log{Level: DefaultLogLevel, Format: DefaultLogFormat},
		Router:      defaultRouter(),
		Debug:       defaultDebug(),
		Coordinator: defaultCoordinator(),
		Timeouts: Timeouts{
			Pending:        DefaultPending,
			Unmatched:      DefaultUnmatched,
			Assign:         DefaultAssign,
			Silent:         DefaultSilent,
			HeartbeatEvery: DefaultHeartbeatEvery,
		},
	}
}

func defaultPool() Pool {
	return Pool{
		Mode:                ModeOrchestrate,
		Capability:          Capability{Type: "instance"},
		CapacityPerInstance: DefaultCapacityPerInstance,
		Policy:              defaultPolicy(),
	}
}

func defaultPolicy() Policy {
	return Policy{
		Need:     "queue",
		Max:      DefaultMax,
		IdleTime: DefaultIdleTime,
		ScaleIn: ScaleIn{
			MaxRemovalsPerTick: DefaultMaxRemovalsPerTick,
			PercentBudget:      DefaultPercentBudget,
		},
		Step:            DefaultStep,
		StepWait:        DefaultStepWait,
		RegisterTimeout: DefaultRegisterTimeout,
		SilentTimeout:   DefaultSilentTimeout,
	}
}
