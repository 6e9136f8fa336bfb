package suite

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/measure"
	"github.com/spillway-ci/spillway/internal/bench/redisd"
)

// maxBytesPerID is what one waiting job may cost a stock Redis at the peak.
const maxBytesPerID = 20

// bareBytesPerID is the limit: an array of 64-bit numbers for each of two epochs.
const bareBytesPerID = 16

func demandMemory() Benchmark {
	return Benchmark{"demand/memory", "Redis memory per job id at the peak, stock settings", runMemory}
}

func runMemory(ctx context.Context, b *bench) error {
	server, err := redisd.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	pipe, err := redisd.Dial(server.Addr)
	if err != nil {
		return err
	}
	defer func() { _ = pipe.Close() }()
	m := &memoryBench{pipe: pipe, addr: server.Addr, views: newViews(b.pick(1_000_000, 100_000))}
	reference := measure.Series{Name: "two bare arrays of 64-bit numbers (arithmetic)", Figures: []float64{bareBytesPerID}}
	b.add(measure.ReferenceRow(reference, "B/id"))
	for _, subject := range []struct {
		name string
		fill func(ctx context.Context, begin func() error) error
	}{
		{"Spillway, two epochs alive", m.fillOwn},
		{"one set per class and epoch, two epochs alive", m.fillSets},
		{"one sorted set per class (go-redis)", m.fillZsets},
	} {
		perID, err := m.perID(ctx, subject.fill)
		if err != nil {
			return err
		}
		s := measure.Series{Name: subject.name, Figures: []float64{perID}}
		row := measure.RowOf(s, "B/id").Against(s, reference)
		if len(b.table.Rows) == 1 {
			row = row.Judged(measure.ValueAtMost(maxBytesPerID))
		}
		row.Exact = true
		b.add(row)
	}
	b.note("%d ids over %d classes, all keys and expiries included", m.views.jobs(), len(m.views.classes))
	return nil
}

type memoryBench struct {
	pipe  *redisd.Pipe
	addr  string
	views *views
}

// perID is by how much the server has grown for each distinct id, since fill called
// begin.
func (m *memoryBench) perID(ctx context.Context, fill func(ctx context.Context, begin func() error) error) (float64, error) {
	var before int64
	begin := func() error {
		_, err := m.pipe.Ask("FLUSHALL")
		if err != nil {
			return err
		}
		before, err = redisd.UsedMemory(m.pipe)
		return err
	}
	if err := fill(ctx, begin); err != nil {
		return 0, err
	}
	after, err := redisd.UsedMemory(m.pipe)
	if err != nil {
		return 0, err
	}
	return float64(after-before) / float64(m.views.jobs()), nil
}

// fillOwn writes three epochs and has the server forget the first, which is there for
// the store to learn how many ids a class has. What the connections hold is not
// counted: they have been used once when it begins.
func (m *memoryBench) fillOwn(ctx context.Context, begin func() error) error {
	own, err := openViewStore(ctx, m.addr, m.views, m.pipe)
	if err != nil {
		return err
	}
	defer own.close()
	if err := begin(); err != nil {
		return err
	}
	for range 3 {
		if _, err := own.writeEpoch(ctx, viewReplicas); err != nil {
			return err
		}
	}
	// Two epochs of sets, a layout and the signatures; and what the store remembers.
	atMost := 2*(m.views.sets()+2) + 1
	written := epochOf(time.Now(), own.interval)
	for {
		keys, err := m.dropExpired(ctx)
		if err != nil {
			return err
		}
		if epochOf(time.Now(), own.interval) != written {
			return errors.New("the first epoch was not forgotten before the third was over: this machine is too busy")
		}
		if keys <= atMost {
			return nil
		}
	}
}

// dropExpired looks at every key, which makes the server drop those that have expired,
// and returns how many there are. By itself it leaves up to a tenth for later.
func (m *memoryBench) dropExpired(ctx context.Context) (int, error) {
	s := newSchemas(m.addr, m.views)
	defer s.close()
	const page = 1_000
	keys := 0
	for i := s.rdb.Scan(ctx, 0, "", page).Iterator(); ; keys++ {
		if !i.Next(ctx) {
			return keys, i.Err()
		}
	}
}

func (m *memoryBench) fillSets(ctx context.Context, begin func() error) error {
	s := newSchemas(m.addr, m.views)
	defer s.close()
	for epoch := range 3 {
		if epoch == 1 { // the first has only used the connection
			if err := begin(); err != nil {
				return err
			}
		}
		s.epoch = epoch
		if err := s.writeSets(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *memoryBench) fillZsets(ctx context.Context, begin func() error) error {
	s := newSchemas(m.addr, m.views)
	defer s.close()
	if err := s.writeZsets(ctx); err != nil {
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	return s.writeZsets(ctx)
}
