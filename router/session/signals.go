package session

import (
	"maps"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
)

// signals is the demand that is told to the runners: per fingerprint, when it has
// changed, and at most once in spillway.MinSignalInterval.
type signals struct {
	sent map[spillway.Fingerprint]spillway.Signal
	at   time.Time
}

func (s *signals) init() { s.sent = make(map[spillway.Fingerprint]spillway.Signal) }

// signal tells the runners what has changed since they were told.
func (d *Dispatcher) signal(now time.Time) {
	if now.Sub(d.signals.at) < spillway.MinSignalInterval {
		return
	}
	d.signals.at = now
	changed := d.changedSignals(now)
	if len(changed) == 0 {
		return
	}
	for _, s := range d.streams {
		if m := changed[d.pools[s.pool.Name].fingerprint]; m != nil && s.registered {
			s.send(m)
		}
	}
}

// changedSignals computes the demand of each fingerprint from the newest picture of the
// queue, and returns what is news.
func (d *Dispatcher) changedSignals(now time.Time) map[spillway.Fingerprint]*runnerv1.RouterMessage {
	runners := make(map[spillway.Fingerprint]int)
	for _, s := range d.streams {
		if s.registered {
			runners[d.pools[s.pool.Name].fingerprint]++
		}
	}
	for pool, n := range d.remote.live {
		runners[d.pools[pool].fingerprint] += n
	}
	jobs := d.faces.eligibleJobs(d.counts.latest)
	changed := make(map[spillway.Fingerprint]*runnerv1.RouterMessage)
	for k, face := range d.faces.distinct {
		s := spillway.NewSignal(face.fingerprint, jobs[k], runners[face.fingerprint], now)
		if was, ok := d.signals.sent[s.Fingerprint]; !ok || was.TotalJobs != s.TotalJobs || was.TotalRunners != s.TotalRunners {
			changed[s.Fingerprint] = signalMessage(s)
			d.signals.sent[s.Fingerprint] = s
		}
	}
	if len(d.signals.sent) > len(d.faces.distinct) { // some were of pools that are gone
		d.signals.forget(d.faces.distinct)
	}
	return changed
}

// forget drops the signals of all fingerprints but those.
func (s *signals) forget(but []poolFace) {
	kept := make(map[spillway.Fingerprint]bool, len(but))
	for i := range but {
		kept[but[i].fingerprint] = true
	}
	maps.DeleteFunc(s.sent, func(fp spillway.Fingerprint, _ spillway.Signal) bool { return !kept[fp] })
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
