package collect

import (
	"cmp"
	"time"

	"github.com/spillway-ci/spillway"
)

// A book may have a hundred thousand jobs and more, each of which is told anew with every
// list. So what is kept of each is small: times are numbers, what many need is shared,
// and where a job runs takes nothing of those that wait.

// instant is a time [µs since 1970]; 0 = not known. It is a third of a time.Time.
type instant int64

func instantOf(t time.Time) instant {
	if t.IsZero() {
		return 0
	}
	return instant(t.UnixMicro())
}

func (i instant) time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(i)).UTC()
}

// stage is how far a job is on its way, as far as counting goes: no job goes back.
type stage uint8

const (
	stageNone stage = iota // nothing is known
	stagePending
	stageRunning
	stageOver
)

func stageOf(s spillway.JobState) stage {
	switch s {
	case spillway.Pending:
		return stagePending
	case spillway.Running:
		return stageRunning
	default:
		return stageOver
	}
}

func (s stage) state() spillway.JobState {
	switch s {
	case stagePending:
		return spillway.Pending
	case stageRunning:
		return spillway.Running
	default:
		return spillway.Canceled // or any other end: they count the same
	}
}

// place is where a job runs, as in Sighting.
type place struct {
	runner int64
	system string
}

// placeOf is where a job runs by a sighting, nil for one that doesn't run.
func placeOf(s *Sighting) *place {
	if s.State != spillway.Running {
		return nil
	}
	return &place{runner: s.Runner, system: s.System}
}

// telling is one snapshot.
type telling struct {
	view  *view     // of the source that told it
	began time.Time // how old its facts are
}

// fact is what the last view of a source says of a job.
type fact struct {
	told  *telling
	next  *fact // what another source says of the job
	need  *spillway.Requirement
	place *place
	since instant
	stage stage
}

// sighting is the fact as all that is said of jobs is compared.
func (f *fact) sighting(key JobKey) Sighting {
	s := Sighting{Job: key, State: f.stage.state(), Requirement: f.need, Since: f.since.time(), At: f.told.began}
	if f.place != nil {
		s.Runner, s.System = f.place.runner, f.place.system
	}
	return s
}

// job is all that the book has of a job besides sightings.
type job struct {
	key   JobKey
	facts *fact  // of the sources whose last view names it
	now   status // what follows
	index int    // among those of its class that wait
}

// factOf is what a view says of the job, nil where it doesn't name it.
func (j *job) factOf(v *view) *fact {
	for f := j.facts; f != nil; f = f.next {
		if f.told.view == v {
			return f
		}
	}
	return nil
}

// tell makes the sighting what its view says of the job.
func (j *job) tell(t *telling, s *Sighting) {
	f := j.factOf(t.view)
	if f == nil {
		f = &fact{next: j.facts}
		j.facts = f
	}
	f.told, f.need, f.place, f.since, f.stage = t, s.Requirement, placeOf(s), instantOf(s.Since), stageOf(s.State)
}

// forget takes away what a view says of the job.
func (j *job) forget(v *view) {
	for at := &j.facts; *at != nil; at = &(*at).next {
		if (*at).told.view == v {
			*at = (*at).next
			return
		}
	}
}

// compareFacts orders facts of one kind: by time; of two of the same time the one
// that is further on its way is the newer one.
func compareFacts(a, b *Sighting) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(stageOf(a.State), stageOf(b.State)))
}
