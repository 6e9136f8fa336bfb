package session

import (
	"context"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
)

// Submit puts one valid job into the queue, as Push does, for another service of this
// process. An outcome of 0, beside an error, is not known.
func (j *Jobs) Submit(ctx context.Context, job spillway.Job) (store.PushOutcome, error) {
	outcomes, err := j.store.Push(ctx, []spillway.Job{job})
	var outcome store.PushOutcome
	if len(outcomes) == 1 {
		outcome = outcomes[0]
	}
	if outcome == store.Accepted {
		j.announce(ctx, []spillway.Job{job})
		tell(j.dispatcher.opt.Events.JobsPushed, JobsPushed{Accepted: 1})
		return outcome, nil
	}
	if err != nil {
		tell(j.dispatcher.opt.Events.StoreTrouble, StoreTrouble{Op: "push", Err: err})
	}
	return outcome, err
}
