package session

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
)

// opened takes a machine in. Attempts that it brings along and that are on our own
// book as its own are believed; what we don't know, the store is asked about, and
// until it has answered the machine is not there yet. So it is with the orders of a
// pool of which no machine was here before: one that is to be drained, and may be let
// go any moment, must not be offered a job first.
func (d *Dispatcher) opened(now time.Time, s *stream) {
	if err := d.admit(now, s); err != nil {
		s.stop(err)
		return
	}
	if older := d.streams[s.machine]; older != nil {
		older.stop(status.Error(codes.AlreadyExists, "this machine id has connected with a newer stream"))
	}
	d.streams[s.machine] = s
	keep, unknown, superseded := d.sortRunning(s)
	_, ordersKnown := d.drains.standing[s.pool.Name]
	if len(unknown) == 0 && ordersKnown {
		d.register(now, s, keep, superseded)
		return
	}
	d.beside(func(ctx context.Context) func(time.Time) {
		mine, others, err := d.verify(ctx, s, unknown)
		orders, ordersErr := d.store.Drains(ctx, s.pool.Name)
		return func(now time.Time) {
			if ordersErr == nil {
				d.drains.standing[s.pool.Name] = orders
			} else {
				d.drains.due = true // without the store nobody is offered anything either
			}
			mine, others = d.cancels.split(mine, others)
			for _, job := range mine {
				keep = append(keep, job.ref)
			}
			if d.streams[s.machine] != s {
				return // it left, or came back another time
			}
			if err != nil {
				d.trouble("verify running jobs", err)
				s.stop(status.Error(codes.Unavailable, "the running jobs can't be verified now"))
				return
			}
			for _, job := range mine {
				d.jobs[job.ref.ID] = job
			}
			d.register(now, s, keep, append(superseded, others...))
		}
	})
}

// admit reports why a machine can't be taken in. Its id is its pool's for as long
// as it has a stream or a job there: nobody with the token of another pool may push
// it out.
func (d *Dispatcher) admit(now time.Time, s *stream) error {
	if d.streams[s.machine] == nil && len(d.streams) >= d.opt.MaxMachines {
		return status.Errorf(codes.ResourceExhausted, "%d machines are connected: try another router", len(d.streams))
	}
	known, exists := d.engine.Machine(s.machine)
	if !exists || known.Pool == s.pool.Name {
		return nil
	}
	if d.streams[s.machine] != nil || known.Assigned > 0 {
		return status.Errorf(codes.PermissionDenied, "machine id %s is in use in another pool", s.machine)
	}
	d.strikeOff(now, s.machine)
	return nil
}

// sortRunning splits the attempts that a machine brings along by what our own
// book says of them.
func (d *Dispatcher) sortRunning(s *stream) (keep, unknown, superseded []router.JobRef) {
	for _, running := range s.register.GetRunning() {
		named := refOf(running.GetJobId(), running.GetAttempt())
		ref, on, held := d.engine.Holder(named.ID)
		switch {
		case !held:
			unknown = append(unknown, named)
		case on == s.machine && ref.Attempt == named.Attempt:
			keep = append(keep, ref)
		default:
			superseded = append(superseded, named)
		}
	}
	return keep, unknown, superseded
}

// verify asks the store which of the attempts are this machine's: an attempt is if
// the record says so, and its claim can still be renewed. Knowing the id and the
// attempt of somebody else's job is not enough.
func (d *Dispatcher) verify(ctx context.Context, s *stream, named []router.JobRef) (mine []*heldJob, others []router.JobRef, err error) {
	ids := make([]spillway.JobID, len(named))
	for i, ref := range named {
		ids[i] = ref.ID
	}
	if len(named) == 0 {
		return nil, nil, nil
	}
	records, err := d.store.GetMany(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	var here []router.JobRef
	held := make(map[router.JobRef]*heldJob)
	for i, r := range records {
		if r == nil || (!runsOn(r, s) && !d.startedUnseen(r, s)) || r.Attempt != named[i].Attempt {
			others = append(others, named[i])
			continue
		}
		ref := refOfRecord(r)
		here = append(here, ref)
		held[ref] = d.heldJobOf(r)
		held[ref].limit += s.pool.StartWithin
	}
	stale, err := d.store.Renew(ctx, here, d.opt.ClaimTTL)
	if err != nil {
		return nil, nil, err
	}
	for _, ref := range stale {
		delete(held, ref)
		others = append(others, ref)
	}
	return slices.Collect(maps.Values(held)), others, nil
}

// heldJobOf is what is remembered of a job that began elsewhere.
func (d *Dispatcher) heldJobOf(r *spillway.JobRecord) *heldJob {
	return &heldJob{
		ref:         refOfRecord(r),
		submittedAt: r.Job.SubmittedAt,
		assignedAt:  r.ClaimedAt,
		limit:       d.opt.Timeouts.Of(spillway.Running, &r.Job, true),
		handedOver:  handedOver(&r.Job),
		started:     r.State == spillway.Running,
		startedAt:   r.StartedAt,
	}
}

// runsOn reports whether a job is on s's machine by its record.
func runsOn(r *spillway.JobRecord, s *stream) bool {
	return !r.State.Terminal() && r.Machine == s.machine && r.Pool == s.pool.Name
}

// startedUnseen reports whether a job may be on s's machine without its record saying
// so: it was claimed for the pool or one like it, and its start is not written yet. A
// replica that was killed in between has given it to one machine of these, which alone
// can say so.
func (d *Dispatcher) startedUnseen(r *spillway.JobRecord, s *stream) bool {
	return r.State == spillway.Assigned && r.Machine == "" &&
		(r.Pool == s.pool.Name || d.alike(r.Pool, s.pool.Name, &r.Job.Requirement))
}

// placeLabels is what labels say of where a machine is: the others are not kept, with
// tens of thousands of machines.
func placeLabels(labels map[string]string) map[string]string {
	var kept map[string]string
	for _, name := range []string{router.LabelZone, router.LabelDistance} {
		if value := labels[name]; value != "" {
			if kept == nil {
				kept = make(map[string]string, 2)
			}
			kept[name] = value
		}
	}
	return kept
}

func refOfRecord(r *spillway.JobRecord) router.JobRef {
	return router.JobRef{ID: r.Job.ID, Class: r.Job.Requirement.Class(), Attempt: r.Attempt}
}

// register makes the machine known to the engine and tells it so.
func (d *Dispatcher) register(now time.Time, s *stream, running, superseded []router.JobRef) {
	before, replaced := d.engine.Machine(s.machine)
	superseded = append(superseded, d.engine.Connect(now, d.introduced(now, s), running)...)
	for range running {
		s.earn()
	}
	delete(d.upkeep.ended, s.machine) // it is back, so that it can be lost another time only
	s.registered = true
	s.send(d.registered(s, superseded))
	d.resumeDrain(s)
	d.underOrder(now, s)
	d.welcome(s)
	s.register = nil // up to 1,000 jobs and 64 labels, not needed again
	close(s.ready)
	d.records.urgent(s.machine)
	m, _ := d.engine.Machine(s.machine)
	tell(d.opt.Events.MachineConnected, MachineConnected{
		Machine: s.machine, Instance: m.InstanceID, Pool: s.pool.Name, Capacity: s.capacity,
		Carried: len(running), Superseded: len(superseded), Replaced: replaced,
	})
	if m.InterruptionKind != before.InterruptionKind {
		d.tellInterrupted(s)
	}
	if m.Unhealthy != before.Unhealthy {
		d.tellHealth(s)
	}
}

// introduced is a machine as it says that it is. What it says of its end is known
// before it is offered its first job.
func (d *Dispatcher) introduced(now time.Time, s *stream) router.Machine {
	m := router.Machine{
		ID:         s.machine,
		InstanceID: s.register.GetInstanceId(),
		Pool:       s.pool.Name,
		Version:    s.register.GetVersion(),
		Capacity:   s.capacity,
		Replica:    d.opt.Replica,
		Unhealthy:  unhealthyOf(s.register.GetUnhealthy()),
		Labels:     placeLabels(s.register.GetLabels()),
	}
	if notice := s.register.GetInterruption(); notice != nil {
		m.InterruptionKind, m.InterruptionDeadline = interruptionOf(now, notice)
	}
	return m
}

func (d *Dispatcher) registered(s *stream, superseded []router.JobRef) *runnerv1.RouterMessage {
	m := &runnerv1.Registered{
		Pool:           s.pool.Name,
		Fingerprint:    d.pools[s.pool.Name].fingerprintText,
		HeartbeatEvery: durationpb.New(d.opt.HeartbeatEvery),
	}
	for _, ref := range superseded {
		m.Superseded = append(m.Superseded, &runnerv1.RunningJob{JobId: string(ref.ID), Attempt: int32(ref.Attempt)})
	}
	return &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Registered{Registered: m}}
}

// closed notes that a stream has ended. Its machine keeps its jobs for a while.
func (d *Dispatcher) closed(now time.Time, s *stream, err error) {
	if d.streams[s.machine] != s {
		return // a newer stream has taken over
	}
	delete(d.streams, s.machine)
	// One that broke before it was taken in may have ended an older stream by then.
	if m, known := d.engine.Machine(s.machine); !s.registered && (!known || !m.Connected) {
		return
	}
	d.engine.Disconnect(now, s.machine)
	d.upkeep.gone[s.machine] = now
	d.records.urgent(s.machine)
	tell(d.opt.Events.MachineDisconnected, MachineDisconnected{
		Machine: s.machine, Pool: s.pool.Name, Held: len(d.engine.Held(s.machine)), Err: err,
	})
}

// refOf is an attempt as a machine names it: machines know no classes.
func refOf(id string, attempt int32) router.JobRef {
	return router.JobRef{ID: spillway.JobID(id), Attempt: int(attempt)}
}
