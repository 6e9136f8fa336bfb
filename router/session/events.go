package session

import (
	"fmt"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// Events narrates what happens; logs, metrics and tests subscribe. Any of the
// functions may be nil. They are called on the dispatcher's goroutine and on
// those of the streams: they must be quick, must not block, and must be safe for
// concurrent use.
type Events struct {
	MachineConnected    func(MachineConnected)
	MachineDisconnected func(MachineDisconnected)
	MachineInterrupted  func(MachineInterrupted)
	MachineHealth       func(MachineHealth)
	StreamRefused       func(StreamRefused)
	JobAssigned         func(JobAssigned)
	JobRefused          func(JobRefused)
	JobStarted          func(JobStarted)
	JobFinished         func(JobFinished)
	JobLost             func(JobLost)
	JobQuarantined      func(JobQuarantined)
	JobRetried          func(JobRetried)
	JobRejected         func(JobRejected)
	JobsPushed          func(JobsPushed)
	Dispatched          func(Dispatched)
	StoreTrouble        func(StoreTrouble)
	RecordsWritten      func(RecordsWritten)
	Panicked            func(Panicked)
}

// MachineConnected tells: a machine has registered.
type MachineConnected struct {
	Machine    spillway.MachineID
	Instance   string // the provider's id of its instance
	Pool       string
	Capacity   int // jobs, after the pool's bound
	Carried    int // running jobs that it brought along and kept
	Superseded int // running jobs that it brought along and has to end
	Replaced   bool
}

// String prints the event for people.
func (e MachineConnected) String() string {
	return fmt.Sprintf("machine %s connected to pool %s: capacity %d, carries %d jobs, %d superseded", e.Machine, e.Pool, e.Capacity, e.Carried, e.Superseded)
}

// MachineDisconnected tells: the stream of a machine has ended.
type MachineDisconnected struct {
	Machine spillway.MachineID
	Pool    string
	Held    int // jobs that it still has
	Err     error
}

// String prints the event for people.
func (e MachineDisconnected) String() string {
	return fmt.Sprintf("machine %s of pool %s disconnected with %d jobs: %v", e.Machine, e.Pool, e.Held, e.Err)
}

// MachineInterrupted tells: a machine has heard from its cloud that its instance
// will be taken away.
type MachineInterrupted struct {
	Machine  spillway.MachineID
	Instance string
	Pool     string
	Kind     string    // as router.Machine.InterruptionKind
	Deadline time.Time // zero = not known
	Held     int       // jobs that it has
}

// String prints the event for people.
func (e MachineInterrupted) String() string {
	deadline := "not known"
	if !e.Deadline.IsZero() {
		deadline = e.Deadline.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("machine %s of pool %s on instance %q interrupted: %s, deadline %s, %d jobs", e.Machine, e.Pool, e.Instance, e.Kind, deadline, e.Held)
}

// MachineHealth tells: a machine says that it is broken, or not any more.
type MachineHealth struct {
	Machine   spillway.MachineID
	Instance  string
	Pool      string
	Unhealthy string // empty = healthy again
}

// String prints the event for people.
func (e MachineHealth) String() string {
	if e.Unhealthy == "" {
		return fmt.Sprintf("machine %s of pool %s on instance %q is healthy again", e.Machine, e.Pool, e.Instance)
	}
	return fmt.Sprintf("machine %s of pool %s on instance %q is unhealthy: %q", e.Machine, e.Pool, e.Instance, e.Unhealthy)
}

// StreamRefused tells: a stream was turned away or ended because it broke a rule.
type StreamRefused struct {
	Machine spillway.MachineID // empty before Register
	Err     error              // a gRPC status
}

// String prints the event for people.
func (e StreamRefused) String() string {
	return fmt.Sprintf("stream of %q refused: %v", e.Machine, e.Err)
}

// JobAssigned tells: a job was sent to a machine.
type JobAssigned struct {
	Ref     router.JobRef
	Machine spillway.MachineID
	Pool    string
	Wait    time.Duration // since its submission
}

// String prints the event for people.
func (e JobAssigned) String() string {
	return fmt.Sprintf("job %s attempt %d assigned to %s of pool %s after %s", e.Ref.ID, e.Ref.Attempt, e.Machine, e.Pool, e.Wait)
}

// JobRefused tells: a machine gave a job back untouched.
type JobRefused struct {
	Ref     router.JobRef
	Machine spillway.MachineID
	Pool    string
	Code    string
}

// String prints the event for people.
func (e JobRefused) String() string {
	return fmt.Sprintf("job %s attempt %d refused by %s of pool %s: %s", e.Ref.ID, e.Ref.Attempt, e.Machine, e.Pool, e.Code)
}

// JobStarted tells: a machine has accepted a job.
type JobStarted struct {
	Ref     router.JobRef
	Machine spillway.MachineID
	Pool    string
}

// String prints the event for people.
func (e JobStarted) String() string {
	return fmt.Sprintf("job %s attempt %d started on %s of pool %s", e.Ref.ID, e.Ref.Attempt, e.Machine, e.Pool)
}

// JobFinished tells: a result is stored. Record has what this replica knows of the job:
// no script, no environment.
type JobFinished struct {
	Record   spillway.JobRecord
	Wait     time.Duration // submission → assignment; 0 when not known here
	Duration time.Duration // assignment → result; 0 when not known here
}

// String prints the event for people.
func (e JobFinished) String() string {
	return fmt.Sprintf("job %s attempt %d %s %s on %s of pool %s: waited %s, ran %s", e.Record.Job.ID, e.Record.Attempt, e.Record.State, e.Record.Result.Reason, e.Record.Machine, e.Record.Pool, e.Wait, e.Duration)
}

// JobLost tells: a job went back to the queue because its machine is gone.
type JobLost struct {
	Ref     router.JobRef
	Machine spillway.MachineID
	Pool    string
	Detail  string
}

// String prints the event for people.
func (e JobLost) String() string {
	return fmt.Sprintf("job %s attempt %d lost on %s of pool %s: %s", e.Ref.ID, e.Ref.Attempt, e.Machine, e.Pool, e.Detail)
}

// JobQuarantined tells: a job has lost as many machines as it may. It is not run any
// more until somebody looks at it.
type JobQuarantined struct {
	Ref    router.JobRef
	Detail string // of the last loss
}

// String prints the event for people.
func (e JobQuarantined) String() string {
	return fmt.Sprintf("job %s is in quarantine after attempt %d: %s", e.Ref.ID, e.Ref.Attempt, e.Detail)
}

// JobRetried tells: at an operator's word a job has left quarantine.
type JobRetried struct {
	ID      spillway.JobID
	Attempt int // the last one
	Reason  string
}

// String prints the event for people.
func (e JobRetried) String() string {
	return fmt.Sprintf("job %s is out of quarantine after attempt %d: %q", e.ID, e.Attempt, e.Reason)
}

// JobRejected tells: pending jobs of one class were ended without being run.
type JobRejected struct {
	Class  spillway.JobClass
	Jobs   int
	Reason spillway.FailureReason
	Detail string
}

// String prints the event for people.
func (e JobRejected) String() string {
	return fmt.Sprintf("%d jobs of class %s rejected, %s: %s", e.Jobs, e.Class, e.Reason, e.Detail)
}

// JobsPushed tells: one batch of pushed jobs has been answered.
type JobsPushed struct {
	Accepted, Duplicate, Conflict, Invalid, Full, Unavailable int // jobs
}

// String prints the event for people.
func (e JobsPushed) String() string {
	return fmt.Sprintf("pushed jobs: %d accepted, %d duplicate, %d conflict, %d invalid, %d refused by a full queue, %d not stored", e.Accepted, e.Duplicate, e.Conflict, e.Invalid, e.Full, e.Unavailable)
}

// Dispatched tells: one claim has come back from the queue.
type Dispatched struct {
	Wanted, Claimed, Assigned, GivenBack int // jobs
	Took                                 time.Duration
}

// String prints the event for people.
func (e Dispatched) String() string {
	return fmt.Sprintf("claimed %d of %d jobs in %s: %d assigned, %d given back", e.Claimed, e.Wanted, e.Took, e.Assigned, e.GivenBack)
}

// StoreTrouble tells: a call to the store failed. Nothing is lost by it; the call is
// made again.
type StoreTrouble struct {
	Op  string
	Err error
}

// String prints the event for people.
func (e StoreTrouble) String() string { return fmt.Sprintf("store: %s: %v", e.Op, e.Err) }

// Panicked tells: a bug. The stream or call that ran into it was ended with Internal;
// everything else goes on.
type Panicked struct {
	Value any
	Stack []byte
}

// String prints the event for people.
func (e Panicked) String() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// panicStatus tells of a recovered panic and returns what the other end may know
// of it.
func panicStatus(events Events, value any) error {
	tell(events.Panicked, Panicked{Value: value, Stack: debug.Stack()})
	return status.Error(codes.Internal, "internal error")
}

// RecordsWritten tells: other replicas and the scaler can see what has changed with
// machines of this one.
type RecordsWritten struct {
	Machines int
	// News: there is more than that machines were heard. Of thousands that wait, some are
	// heard all the time, and nobody has to look at the fleet for that.
	News bool
}

// String prints the event for people.
func (e RecordsWritten) String() string { return fmt.Sprintf("%d machine records written", e.Machines) }

// tell calls f if somebody listens.
func tell[T any](f func(T), info T) {
	if f != nil {
		f(info)
	}
}
