package spillway

import (
	"cmp"
	"errors"
	"strings"
	"time"
)

// Limits on one job.
const (
	// MaxJobIDBytes bounds a job id [bytes].
	MaxJobIDBytes = 128
	// MaxJobNameBytes bounds a job's display name [bytes].
	MaxJobNameBytes = 255
	// MaxImageBytes bounds a job's image [bytes]; references of registries are shorter.
	MaxImageBytes = 1024
	// MaxAffinityBytes bounds a job's affinity and its anti-affinity [bytes].
	MaxAffinityBytes = 128
	// MaxScriptBytes bounds a job's script [bytes]; with the environment it must
	// stay well under the 256 KiB that a runner's stream may carry in one message.
	MaxScriptBytes = 128 << 10
	// MaxEnvVars and MaxEnvBytes bound a job's environment [entries, bytes in all].
	MaxEnvVars  = 256
	MaxEnvBytes = 64 << 10
	// MaxJobPriority is the least urgent priority; 0 is the most urgent.
	MaxJobPriority = 9
	// MaxJobTimeout is the longest time limit of a job; GitLab allows one month.
	MaxJobTimeout = 31 * 24 * time.Hour
	// DefaultJobTimeout is GitLab's own default of one hour.
	DefaultJobTimeout = time.Hour
	// DefaultMaxAttempts is how often a job is started when machines are lost
	// under it (semantics: a machine is lost while a job runs).
	DefaultMaxAttempts = 3
	// MaxJobAttempts bounds a job's own max_attempts: a job that takes its machine
	// down each time must end before it has cost a fleet.
	MaxJobAttempts = 100
	// MaxOutputBytes bounds the tail of a job's output kept in its result [bytes].
	MaxOutputBytes = 64 << 10
	// MaxTransitions is how many of a job's transitions are kept, the newest
	// [transitions]: eight attempts of four, more than any job has that is not sick.
	MaxTransitions = 32
	// MaxTransitionReasonBytes bounds why a job changed its state [bytes]; the rest is
	// cut off.
	MaxTransitionReasonBytes = 80
)

// Requirement is what a job needs from a runner. Tags are a set, compared byte
// by byte.
type Requirement struct {
	Tags      []string
	Protected bool    // the job runs on a protected ref
	Project   int64   // id of the job's project; 0 = none
	Groups    []int64 // ids of the project's ancestor groups
	Resources Resources
	Origin    string // who hands the job out; see Capability.Origin
}

// Validate reports every rule that r breaks, joined; nil when there is none.
func (r Requirement) Validate() error {
	var errs []error
	if len(r.Tags) >= MaxJobTags {
		errs = append(errs, invalidf("%d tags, a job must have fewer than %d", len(r.Tags), MaxJobTags))
	} else {
		errs = append(errs, validateTags(r.Tags))
	}
	if r.Project < 0 {
		errs = append(errs, invalidf("project %d is negative", r.Project))
	}
	if len(r.Groups) > MaxScopeEntries {
		errs = append(errs, invalidf("%d ancestor groups, at most %d are allowed", len(r.Groups), MaxScopeEntries))
	}
	errs = append(errs, validateIDs("group", r.Groups), r.Resources.validate(), validateOrigin(r.Origin))
	return errors.Join(errs...)
}

// Normalize returns r in the one form that all equal requirements share.
func (r Requirement) Normalize() Requirement {
	r.Tags = sortedSet(r.Tags)
	r.Groups = sortedSet(r.Groups)
	r.Resources = r.Resources.normalize()
	return r
}

// JobID names a job for ever. Ids that are canonical decimal numbers below 2⁶³
// are stored as numbers, which costs a seventh of the memory of a string.
type JobID string

// Numeric returns the id as a number if it is a canonical decimal one.
func (id JobID) Numeric() (int64, bool) {
	if id == "" || len(id) > 19 || (id[0] == '0' && len(id) > 1) {
		return 0, false
	}
	// By hand, because views of a million ids go through here. 19 digits are below 2⁶⁴,
	// so what is above 2⁶³ shows in the sign.
	var n int64
	for i := range len(id) {
		digit := id[i] - '0'
		if digit > 9 {
			return 0, false
		}
		n = 10*n + int64(digit)
	}
	return max(n, 0), n >= 0
}

// Job is a CI job that Spillway was given to have run.
type Job struct {
	ID          JobID
	Name        string
	Requirement Requirement
	Priority    int // 0 first, at most MaxJobPriority
	Script      string
	Env         map[string]string // may hold secrets: never logged
	Timeout     time.Duration     // time limit once running; 0 = DefaultJobTimeout
	NoRetry     bool              // never run twice, even when its machine is lost
	MaxAttempts int               // 0 = DefaultMaxAttempts
	// Affinity: better on a machine that ran a job with the same word lately; empty =
	// of the same project. AntiAffinity: better not on a machine that runs one with the
	// same word now.
	Affinity     string
	AntiAffinity string
	// Image is what the job says that it runs in, for admission controllers to judge; how
	// it is run, its machine decides.
	Image       string
	SubmittedAt time.Time // set by the control plane when it is accepted
}

// Validate reports every rule that j breaks, joined; nil when there is none.
func (j *Job) Validate() error {
	errs := []error{j.Requirement.Validate()}
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, invalidf(format, args...))
		}
	}
	check(j.ID == "", "a job needs an id")
	check(len(j.ID) > MaxJobIDBytes, "job id of %d bytes, at most %d are allowed", len(j.ID), MaxJobIDBytes)
	check(!printable(string(j.ID)), "a job id must be printable ASCII without blanks")
	check(len(j.Name) > MaxJobNameBytes, "job name of %d bytes, at most %d are allowed", len(j.Name), MaxJobNameBytes)
	check(len(j.Affinity) > MaxAffinityBytes, "affinity of %d bytes, at most %d are allowed", len(j.Affinity), MaxAffinityBytes)
	check(len(j.AntiAffinity) > MaxAffinityBytes, "anti_affinity of %d bytes, at most %d are allowed", len(j.AntiAffinity), MaxAffinityBytes)
	check(!printable(j.Affinity) || !printable(j.AntiAffinity), "affinity and anti_affinity must be printable ASCII without blanks")
	check(len(j.Image) > MaxImageBytes, "image of %d bytes, at most %d are allowed", len(j.Image), MaxImageBytes)
	check(!printable(j.Image), "image %.80q: an image must be printable ASCII without blanks", j.Image)
	check(j.Script == "", "a job needs a script")
	check(len(j.Script) > MaxScriptBytes, "script of %d bytes, at most %d are allowed", len(j.Script), MaxScriptBytes)
	check(len(j.Env) > MaxEnvVars, "%d environment variables, at most %d are allowed", len(j.Env), MaxEnvVars)
	envBytes := 0
	for k, v := range j.Env {
		envBytes += len(k) + len(v)
		check(!envName(k), "environment variable name %.40q: use letters, digits and _", k)
		check(strings.ContainsRune(v, 0), "environment variable %.40s: a value can't hold a zero byte", k)
	}
	check(envBytes > MaxEnvBytes, "environment of %d bytes, at most %d are allowed", envBytes, MaxEnvBytes)
	check(j.Priority < 0 || j.Priority > MaxJobPriority, "priority %d: use 0 (first) to %d", j.Priority, MaxJobPriority)
	check(j.Timeout < 0 || j.Timeout > MaxJobTimeout, "timeout %s: use 0 (default) to %s", j.Timeout, MaxJobTimeout)
	check(j.MaxAttempts < 0 || j.MaxAttempts > MaxJobAttempts, "max_attempts %d: use 0 (default) to %d", j.MaxAttempts, MaxJobAttempts)
	return errors.Join(errs...)
}

// EffectiveTimeout is the time limit with the default applied.
func (j *Job) EffectiveTimeout() time.Duration { return cmp.Or(j.Timeout, DefaultJobTimeout) }

// EffectiveMaxAttempts is the number of starts with the default and NoRetry applied.
func (j *Job) EffectiveMaxAttempts() int {
	if j.NoRetry {
		return 1
	}
	return cmp.Or(j.MaxAttempts, DefaultMaxAttempts)
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func envName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// JobState is where a job is on its way. The transitions are router's.
type JobState string

// The job states. Completed, Failed, Rejected and Canceled are terminal.
const (
	Pending   JobState = "pending"   // waits for a place
	Routing   JobState = "routing"   // claimed by a replica, a pool is being chosen
	Admitted  JobState = "admitted"  // every admission controller said yes
	Assigned  JobState = "assigned"  // sent to one machine, not yet started
	Running   JobState = "running"   // the machine says that it started
	Completed JobState = "completed" // ended with exit code 0
	Failed    JobState = "failed"    // ended otherwise; the reason says how
	Rejected  JobState = "rejected"  // will not be run; the reason says why
	Canceled  JobState = "canceled"  // somebody took it back
)

// Terminal reports whether s is final.
func (s JobState) Terminal() bool {
	switch s {
	case Completed, Failed, Rejected, Canceled:
		return true
	default:
		return false
	}
}

// FailureReason says why a job ended other than well. The names are GitLab's
// where GitLab has one (gitlab-runner common/network.go).
type FailureReason string

// The failure reasons.
const (
	ScriptFailure       FailureReason = "script_failure"        // the script's exit code was not 0
	JobExecutionTimeout FailureReason = "job_execution_timeout" // the time limit was reached
	RunnerSystemFailure FailureReason = "runner_system_failure" // machines were lost max_attempts times
	Unmatched           FailureReason = "unmatched"             // no pool can take it, for unmatched_timeout
	PendingTimeout      FailureReason = "pending_timeout"       // waited longer than pending_timeout
	JobCanceled         FailureReason = "job_canceled"
	AdmissionRejected   FailureReason = "admission_rejected" // an admission controller said no
	AdmissionTimeout    FailureReason = "admission_timeout"  // one was asked, or absent, for its deadline
)

// JobResult is how a job ended.
type JobResult struct {
	State    JobState // terminal
	Reason   FailureReason
	Detail   string // a sentence for people; never holds variables
	ExitCode int
	Output   []byte // tail, at most MaxOutputBytes
}

// JobRecord is a job with all that is known of it.
type JobRecord struct {
	Job        Job
	State      JobState
	Attempt    int // 0 = never claimed; grows with each claim, fences older results
	Lost       int // how often a machine was lost under it
	Pool       string
	Machine    MachineID
	ClaimedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	Result     JobResult
	// Quarantined: it has Failed because max_attempts machines were lost under it, and is
	// kept, with all it needs, until an operator has it tried again or its time is up.
	Quarantined bool
	// Transitions are the last MaxTransitions, the oldest first; the last one brought the
	// job to State.
	Transitions []JobTransition
}

// Sequence is the number of the job's last transition; 0 when none is known.
func (r *JobRecord) Sequence() int64 {
	if len(r.Transitions) == 0 {
		return 0
	}
	return r.Transitions[len(r.Transitions)-1].Sequence
}

// JobTransition is one change of a job's state.
type JobTransition struct {
	Sequence int64 // 1 is its submission; grows by one
	State    JobState
	Attempt  int
	Pool     string    // while it is with one
	Machine  MachineID // while it is with one
	At       time.Time // by the store's clock
	Reason   string    // a FailureReason, or a few words; empty: as it should be
}

// MachineID names one runner process (GitLab's system_id).
type MachineID string
