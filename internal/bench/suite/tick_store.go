package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/measure"
	"github.com/spillway-ci/spillway/internal/bench/redisd"
	"github.com/spillway-ci/spillway/store"
)

const (
	// viewSource names the source of the views.
	viewSource = "bench"
	// viewTimeout is one operation's: a million ids on a busy machine.
	viewTimeout = time.Minute
	// epochTries is how often a round is begun again, because the views did not fit
	// into an epoch.
	epochTries = 4
	// epochSpare is how many times longer an epoch is than writing took at first, and
	// minEpoch the shortest: what is written must also be looked at within it.
	epochSpare = 3
	minEpoch   = time.Second
)

// viewStore is Spillway's own way: sets per epoch, spread so that they stay small.
type viewStore struct {
	store    *store.Store
	pipe     *redisd.Pipe // for asking the server
	views    *views
	interval time.Duration

	wrong       int // classes with a wrong count, in all rounds
	write, read int // commands of the last round
}

// openViewStore connects, and learns how long an epoch must be for all views to fit.
func openViewStore(ctx context.Context, addr string, v *views, pipe *redisd.Pipe) (*viewStore, error) {
	s, err := store.Open(ctx, store.Options{Addrs: []string{addr}, Timeout: viewTimeout})
	if err != nil {
		return nil, err
	}
	own := &viewStore{store: s, pipe: pipe, views: v, interval: time.Hour}
	began := time.Now()
	if err := own.writeAll(ctx, viewReplicas); err != nil {
		own.close()
		return nil, err
	}
	took := time.Since(began)
	if _, err := pipe.Ask("FLUSHALL"); err != nil {
		own.close()
		return nil, err
	}
	own.interval = max(minEpoch, (epochSpare * took).Round(time.Second))
	return own, nil
}

func (o *viewStore) close() { _ = o.store.Close() }

func (o *viewStore) writeAll(ctx context.Context, replicas int) error {
	for r, name := range o.views.replicaNames(replicas) {
		if err := o.store.WriteView(ctx, viewSource, name, o.interval, o.views.seen[r]); err != nil {
			return err
		}
	}
	return nil
}

// writeEpoch writes the views of replicas into one new epoch, and returns how long
// that took.
func (o *viewStore) writeEpoch(ctx context.Context, replicas int) (time.Duration, error) {
	for range epochTries {
		if err := waitForEpoch(ctx, o.interval); err != nil {
			return 0, err
		}
		if err := redisd.ResetCommands(o.pipe); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := o.writeAll(ctx, replicas); err != nil {
			return 0, err
		}
		ended := time.Now()
		if epochOf(began, o.interval) == epochOf(ended, o.interval) {
			return ended.Sub(began), nil
		}
		o.interval += o.interval.Round(2*time.Second) / 2
	}
	return 0, errEpochTooShort
}

// turn writes one epoch, waits until it is over, and reads it.
func (o *viewStore) turn(ctx context.Context) ([]float64, error) {
	wrote, err := o.writeEpoch(ctx, viewReplicas)
	if err != nil {
		return nil, err
	}
	if o.write, err = o.commands(); err != nil {
		return nil, err
	}
	if err := waitForEpoch(ctx, o.interval); err != nil {
		return nil, err
	}
	began := time.Now()
	for range readsPerFigure {
		counts, err := o.store.ReadView(ctx, viewSource, o.interval, o.views.replicaNames(viewReplicas))
		if err != nil {
			return nil, err
		}
		if !counts.Whole {
			return nil, fmt.Errorf("the view is not whole: %v missing", counts.Missing)
		}
		o.wrong += o.views.wrongCounts(counts.Jobs, viewReplicas)
	}
	read := millis(time.Since(began)) / readsPerFigure
	if o.read, err = o.commands(); err != nil {
		return nil, err
	}
	return []float64{millis(wrote), read}, nil
}

// commands is how many commands the server has carried out since it was last asked.
func (o *viewStore) commands() (int, error) {
	byName, err := redisd.Commands(o.pipe)
	if err != nil {
		return 0, err
	}
	sum := 0
	for _, n := range byName {
		sum += n
	}
	return sum, redisd.ResetCommands(o.pipe)
}

// addCounters adds what was counted: it must hold on any machine.
func (o *viewStore) addCounters(b *bench) {
	sets := o.views.sets()
	const (
		perSet   = 3  // SADD, expiry, size
		perWrite = 12 // the epoch, its layout, the signature
		perRead  = 4  // the epoch, who has signed, the layout, a last look
	)
	b.add(
		measure.NoMoreThan("Redis commands to write", "commands", o.write, viewReplicas*(perSet*sets+perWrite)+len(o.views.classes)),
		measure.NoMoreThan("Redis commands to read", "commands", o.read/readsPerFigure, sets+perRead),
		measure.Exactly("wrong counts, all replicas alive", "classes", o.wrong, 0),
	)
}

// loseReplica has one replica write no more. What only it saw must be forgotten, and
// until its lease has ended, the counts must be known for a lower bound.
func (o *viewStore) loseReplica(ctx context.Context, b *bench) error {
	alive := viewReplicas - 1
	if _, err := o.writeEpoch(ctx, alive); err != nil {
		return err
	}
	if err := waitForEpoch(ctx, o.interval); err != nil {
		return err
	}
	before, err := o.store.ReadView(ctx, viewSource, o.interval, o.views.replicaNames(viewReplicas))
	if err != nil {
		return err
	}
	after, err := o.store.ReadView(ctx, viewSource, o.interval, o.views.replicaNames(alive))
	if err != nil {
		return err
	}
	wrong := o.views.wrongCounts(after.Jobs, alive)
	if !after.Whole {
		wrong = len(o.views.classes)
	}
	b.add(
		measure.Exactly("wrong counts, one replica dead", "classes", wrong, 0),
		measure.Exactly("replicas missed while its lease lives", "replicas", len(before.Missing), 1),
	)
	return nil
}
