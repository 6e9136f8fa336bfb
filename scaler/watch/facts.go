package watch

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/evidence"
)

// facts gathers all that is known of a pool. The order matters: orders first, then the
// book, so that the book has every job that came before an order; then the mark of the
// book, so that a book that was lost meanwhile is found out.
func (m *Machines) facts(ctx context.Context, p Pool, mem *memory, epoch uint64, records []router.Machine, runners map[int64]collect.RunnerState) (*evidence.Facts, error) {
	f := &evidence.Facts{
		Pool: p.Name, Mode: p.Mode, Capacity: p.Capacity, Drain: p.Drain, HookVerified: m.HookVerified(p.Name), Fresh: m.Fresh,
	}
	f.Instances, f.ListedAt = instances(m.Lists.of(p.Name))
	var err error
	if f.Drains, err = m.drains(ctx, p.Name, mem); err != nil {
		return nil, err
	}
	if p.Mode == evidence.Observe {
		f.Streams = records
	} else if err := m.book(ctx, p, mem, epoch, records, f); err != nil {
		return nil, err
	}
	if p.Scraped && m.Metrics != nil {
		f.Scrapes = scrapes(m.Metrics.Scrapes(p.Name))
	}
	f.Runners = mem.states(p.Runners, runners)
	return f, nil
}

// scrapes is never nil: that would mean that nobody asks.
func scrapes(got map[string]evidence.Scrape) map[string]evidence.Scrape {
	if got == nil {
		return map[string]evidence.Scrape{}
	}
	return got
}

func instances(l list) ([]evidence.Instance, time.Time) {
	out := make([]evidence.Instance, len(l.instances))
	for i, in := range l.instances {
		ending := in.State == pluginsdk.StateDeleting || in.Hook == pluginsdk.TerminationHook
		running := in.State != pluginsdk.StateCreating && !ending
		out[i] = evidence.Instance{ID: in.ID, LaunchedAt: in.LaunchedAt, Running: running, Ending: ending}
	}
	return out, l.at
}

// drains are the orders in force, each since this replica first saw it.
func (m *Machines) drains(ctx context.Context, pool string, mem *memory) (map[string]router.DrainOrder, error) {
	orders, err := m.Registry.Drains(ctx, pool)
	if err != nil {
		return nil, err
	}
	now := m.Now()
	known := make(map[spillway.MachineID]order, len(orders))
	out := make(map[string]router.DrainOrder, len(orders))
	for id, o := range orders {
		seen := now
		if before, ok := mem.orders[id]; ok && before.At.Equal(o.At) {
			seen = before.seen
		}
		known[id] = order{DrainOrder: o, seen: seen}
		o.At = seen
		out[string(id)] = o
	}
	mem.orders = known
	return out, nil
}

// book adds the machines that ask for jobs through us, with what they were handed. The
// others of the pool's records are of sidecars: those have heartbeats.
func (m *Machines) book(ctx context.Context, p Pool, mem *memory, epoch uint64, records []router.Machine, f *evidence.Facts) error {
	readAt := m.Now()
	books, err := m.Registry.Routed(ctx, p.Name)
	if err != nil {
		return err
	}
	asked := make(map[spillway.MachineID]router.Machine)
	add := func(r router.Machine) {
		book := books[r.ID]
		f.Routed = append(f.Routed, evidence.Routed{
			Machine: r, Open: len(book.Open), Uses: book.Uses, LastUsedAt: book.LastUsedAt, ReadAt: readAt,
		})
		if len(book.Open) > 0 {
			asked[r.ID] = r
		}
		delete(books, r.ID)
	}
	for _, r := range records {
		if r.HeartbeatAt.IsZero() {
			add(r)
		} else {
			f.Streams = append(f.Streams, r)
		}
	}
	for id, book := range books { // at its limit a machine does not ask, and its record expires
		if len(book.Open) == 0 {
			continue
		}
		r, known := mem.asked[id]
		if !known {
			r = router.Machine{ID: id, Pool: p.Name, Capacity: p.Capacity, Connected: true, RegisteredAt: book.Open[0].Begun}
		}
		add(r)
	}
	mem.asked = asked
	f.BookSince, err = m.since(ctx, p.Name, mem, epoch, readAt)
	return err
}

// markTTL is how long the mark of a book is kept without being written again, and
// markEvery how often it is.
const (
	markTTL   = 24 * time.Hour
	markEvery = time.Hour
)

func markName(pool string) string { return "book/" + pool }

// since is since when the book has every job. The mark of that is kept where the book
// is, so that who has lost the one has lost the other.
func (m *Machines) since(ctx context.Context, pool string, mem *memory, epoch uint64, readAt time.Time) (time.Time, error) {
	data, found, err := m.Boards.Board(ctx, markName(pool))
	if err != nil {
		return time.Time{}, err
	}
	since := readAt
	if found {
		if err := since.UnmarshalText(data); err != nil {
			return time.Time{}, fmt.Errorf("the mark of the book: %w", err)
		}
	}
	if found && since.Equal(mem.since) && readAt.Sub(mem.marked) < markEvery {
		return since, nil
	}
	data, err = since.UTC().MarshalText()
	if err != nil {
		return time.Time{}, fmt.Errorf("the mark of the book: %w", err)
	}
	if err := m.Boards.PutBoard(ctx, markName(pool), epoch, data, markTTL); err != nil {
		return time.Time{}, err
	}
	mem.since, mem.marked = since, readAt
	return since, nil
}

// states are GitLab's words on the runners that a pool names.
func (mem *memory) states(ids []int64, known map[int64]collect.RunnerState) map[string]evidence.Runner {
	out := make(map[string]evidence.Runner, len(ids))
	systems := make(map[string][]string, len(ids))
	for _, id := range ids {
		s, name := known[id], strconv.FormatInt(id, 10) // the zero state of one that nothing is known of proves nothing
		if s.Deleted || (s.At.IsZero() && s.Systems == nil) {
			systems[name] = mem.systems[name]
		} else {
			systems[name] = s.Systems
		}
		if s.Deleted {
			s.Systems = systems[name]
		}
		out[name] = evidence.Runner{
			At: s.At, Whole: s.Whole && s.Problem == "", Running: s.Running, BySystem: s.BySystem, Systems: s.Systems,
			Deleted: s.Deleted, Paused: s.Paused,
		}
	}
	mem.systems = systems
	return out
}
