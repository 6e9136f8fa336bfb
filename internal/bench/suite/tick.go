package suite

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/measure"
	"github.com/spillway-ci/spillway/internal/bench/redisd"
)

// The targets of a tick, against the raw pipe that writes and counts the same sets.
const (
	maxTickWrite = 1.5
	maxTickRead  = 1.5
)

// readsPerFigure is how many reads one figure is the mean of: they are short.
const readsPerFigure = 5

func demandTick() Benchmark {
	return Benchmark{"demand/tick", "whole views of 3 replicas into Redis, and counted again", runTick}
}

func runTick(ctx context.Context, b *bench) error {
	server, err := redisd.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	v := newViews(b.pick(1_000_000, 100_000))
	pipe, err := redisd.Dial(server.Addr)
	if err != nil {
		return err
	}
	defer func() { _ = pipe.Close() }()
	own, err := openViewStore(ctx, server.Addr, v, pipe)
	if err != nil {
		return err
	}
	defer own.close()
	peers := newSchemas(server.Addr, v)
	defer peers.close()
	// All read as long after they have written: what was just written is in every cache.
	pause := func(ctx context.Context) error { return waitForEpoch(ctx, own.interval) }
	peers.pause = pause
	raw := newRawViews(pipe, v)
	raw.pause = pause
	all, err := measure.RoundsOf(ctx, b.Rounds, 2, []measure.Work{
		{Name: "raw RESP pipe, the same ids into the same sets", Run: raw.turn},
		{Name: "Spillway, WriteView and ReadView", Run: own.turn},
		{Name: "one set per class and epoch (go-redis)", Run: peers.setTurn},
		{Name: "one sorted set per class (go-redis)", Run: peers.zsetTurn},
	})
	if err != nil {
		return err
	}
	for figure, bound := range []float64{maxTickWrite, maxTickRead} {
		addTickRows(b, []string{"write: ", "read: "}[figure], all[figure], bound)
	}
	own.addCounters(b)
	b.note("%d jobs of %d classes, each replica sees half of them; one epoch is %s", v.jobs(), len(v.classes), own.interval)
	b.note("everybody reads in the epoch after the one that was written, %d times in a row, as a tick does once", readsPerFigure)
	b.note("a sorted set needs no epoch, so that its second write of an id is an update; the others write into new sets")
	return own.loseReplica(ctx, b)
}

func addTickRows(b *bench, prefix string, series []measure.Series, bound float64) {
	for i := range series {
		series[i].Name = prefix + series[i].Name
	}
	b.add(measure.ReferenceRow(series[0], "ms"),
		measure.RowOf(series[1], "ms").Against(series[1], series[0]).Judged(measure.RatioAtMost(bound)))
	for _, s := range series[2:] {
		b.add(measure.RowOf(s, "ms").Against(s, series[0]))
	}
}

// rawViews is the limit: the same ids into as many sets, without a client library.
type rawViews struct {
	pipe  *redisd.Pipe
	round int
	pause func(context.Context) error // between writing and reading
	parts [viewReplicas][]rawPart
}

// rawPart is what goes into one set; its key is the round and a name.
type rawPart struct {
	name string
	ids  []string
}

func newRawViews(pipe *redisd.Pipe, v *views) *rawViews {
	r := &rawViews{pipe: pipe}
	for replica := range r.parts {
		from, _ := v.window(replica)
		for _, class := range v.classes {
			sets := make([][]string, v.setsPerClass())
			for i, id := range v.seen[replica][class] {
				at := (from + i) % len(sets)
				sets[at] = append(sets[at], string(id))
			}
			for i, ids := range sets {
				r.parts[replica] = append(r.parts[replica], rawPart{string(class) + ":" + string(rune('a'+i)), ids})
			}
		}
	}
	return r
}

func (r *rawViews) key(name string) string { return "raw:" + string(rune('0'+r.round%10)) + ":" + name }

func (r *rawViews) turn(ctx context.Context) ([]float64, error) {
	if err := r.forget(); err != nil {
		return nil, err
	}
	r.round++
	began := time.Now()
	for _, parts := range r.parts {
		for _, p := range parts {
			r.pipe.Queue(append([]string{"SADD", r.key(p.name)}, p.ids...)...)
		}
		if _, err := r.pipe.Flush(); err != nil {
			return nil, err
		}
	}
	wrote := millis(time.Since(began))
	if err := r.pause(ctx); err != nil {
		return nil, err
	}
	began = time.Now()
	for range readsPerFigure {
		for _, p := range r.parts[0] {
			r.pipe.Queue("SCARD", r.key(p.name))
		}
		if _, err := r.pipe.Flush(); err != nil {
			return nil, err
		}
	}
	return []float64{wrote, millis(time.Since(began)) / readsPerFigure}, nil
}

// forget drops the sets of the round before: an epoch's are always new.
func (r *rawViews) forget() error {
	for _, p := range r.parts[0] {
		r.pipe.Queue("DEL", r.key(p.name))
	}
	_, err := r.pipe.Flush()
	return err
}
