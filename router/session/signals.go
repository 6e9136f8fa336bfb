package session

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// signals is the demand that is told to the runners: per fingerprint, when it has
// changed, and at most once in spillway.MinSignalInterval.
type signals struct {
	sent    map[spillway.Fingerprint]spillway.Signal
	at      time.Time
	remote  map[string]int // live machines of other replicas by pool
	read    time.Time      // when remote was
	reading bool
}

func (s *signals) init() { s.sent = make(map[spillway.Fingerprint]spillway.Signal) }

// signal tells the runners what has changed since they were told.
func (d *Dispatcher) signal(now time.Time) {
	if now.Sub(d.signals.at) < spillway.MinSignalInterval {
		return
	}
	d.signals.at = now
	d.countRemote(now)
	changed := make(map[spillway.Fingerprint]*runnerv1.RouterMessage)
	current := d.currentSignals(now)
	for fp, s := range current {
		if was, ok := d.signals.sent[fp]; !ok || was.TotalJobs != s.TotalJobs || was.TotalRunners != s.TotalRunners {
			changed[fp] = signalMessage(s)
		} else {
			current[fp] = was
		}
	}
	d.signals.sent = current
	if len(changed) == 0 {
		return
	}
	for _, s := range d.streams {
		if m := changed[d.pools[s.pool.Name].fingerprint]; m != nil && s.registered {
			s.send(m)
		}
	}
}

// currentSignals computes the demand of each fingerprint from the newest picture
// of the queue.
func (d *Dispatcher) currentSignals(now time.Time) map[spillway.Fingerprint]spillway.Signal {
	runners := make(map[spillway.Fingerprint]int)
	for _, s := range d.streams {
		if s.registered {
			runners[d.pools[s.pool.Name].fingerprint]++
		}
	}
	for pool, n := range d.signals.remote {
		runners[d.pools[pool].fingerprint] += n
	}
	jobs := d.faces.eligibleJobs(d.counts.latest)
	current := make(map[spillway.Fingerprint]spillway.Signal, len(jobs))
	for k, face := range d.faces.distinct {
		current[face.fingerprint] = spillway.NewSignal(face.fingerprint, jobs[k], runners[face.fingerprint], now)
	}
	return current
}

// countRemote counts the machines of other replicas once in a while: their number
// changes slowly.
func (d *Dispatcher) countRemote(now time.Time) {
	if d.signals.reading || now.Sub(d.signals.read) < d.opt.HeartbeatEvery {
		return
	}
	d.signals.reading, d.signals.read = true, now
	d.beside(func(ctx context.Context) func(time.Time) {
		all, err := d.store.Machines(ctx)
		return func(now time.Time) {
			d.signals.reading = false
			if err != nil {
				d.trouble("read machines", err)
				return
			}
			d.signals.remote = make(map[string]int)
			for i := range all {
				m := &all[i]
				if m.Replica != d.opt.Replica && m.Connected && now.Sub(m.HeardAt) <= d.opt.SilentAfter {
					d.signals.remote[m.Pool]++
				}
			}
		}
	})
}

// welcome tells a new machine of the demand.
func (d *Dispatcher) welcome(s *stream) {
	if signal, ok := d.signals.sent[d.pools[s.pool.Name].fingerprint]; ok {
		s.send(signalMessage(signal))
	}
}

// waitIfIdle tells a machine that has nothing to do why, but not often: it costs a
// message for each of thousands of idle machines.
func (d *Dispatcher) waitIfIdle(now time.Time, s *stream) {
	m, ok := d.engine.Machine(s.machine)
	if !ok || m.InUse() > 0 || m.Draining || now.Sub(s.waitedAt) < waitEvery {
		return
	}
	reason, until := d.engine.WaitReason(s.pool.Name)
	wait := waitEvery
	if !until.IsZero() {
		wait = min(max(until.Sub(now), 0), waitEvery)
	}
	s.waitedAt = now
	s.send(&runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Wait{Wait: &runnerv1.Wait{
		Reason: reason, RetryAfter: durationpb.New(wait),
	}}})
}

func signalMessage(s spillway.Signal) *runnerv1.RouterMessage {
	return &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Signal{Signal: SignalToProto(s)}}
}
