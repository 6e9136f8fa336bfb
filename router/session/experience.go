package session

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway/router"
)

// ExperienceEvery is how often replicas tell each other what they have learned of places
// for jobs: one command in that time. A mean of ten jobs does not change sooner (not
// smaller), and a replica that is killed loses no more than that (not larger).
const ExperienceEvery = 5 * time.Second

// ExperienceStore keeps what replicas learn; *store.Store does.
type ExperienceStore interface {
	// ShareExperience adds what was learned, and returns what others have since the
	// exchange of that number (0: ever), and the number of this one.
	ShareExperience(ctx context.Context, since uint64, x router.Experience) (got router.Experience, number uint64, err error)
}

// ShareExperience has the engine learn what the store has, and then tell what it has
// learned and hear what others have, until ctx ends. What could not be told is told at
// the next time. Nothing waits for it.
func (d *Dispatcher) ShareExperience(ctx context.Context, s ExperienceStore) {
	var untold router.Experience
	number := uint64(0)
	next := time.NewTicker(ExperienceEvery)
	defer next.Stop()
	for {
		if untold.Empty() {
			untold = d.learned(ctx)
		}
		got, at, err := s.ShareExperience(ctx, number, untold)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			tell(d.opt.Events.StoreTrouble, StoreTrouble{Op: "share what was learned", Err: err})
		default:
			untold, number = router.Experience{}, at
			d.learn(ctx, got)
		}
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
	}
}

// learned asks the engine.
func (d *Dispatcher) learned(ctx context.Context) router.Experience {
	answer := make(chan router.Experience, 1)
	if !d.put(ctx, event{kind: called, call: func(time.Time) { answer <- d.engine.Learned() }}) {
		return router.Experience{}
	}
	select {
	case x := <-answer:
		return x
	case <-ctx.Done():
	case <-d.done:
	}
	return router.Experience{}
}

func (d *Dispatcher) learn(ctx context.Context, x router.Experience) {
	if !x.Empty() {
		d.put(ctx, event{kind: called, call: func(time.Time) { d.engine.Learn(x) }})
	}
}
