package watch

import (
	"context"
	"strconv"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/evidence"
)

// facts gathers all that is known of a pool. The order matters: orders first, then the
// book, so that the book has every job that came before an order.
func (m *Machines) facts(ctx context.Context, p Pool, mem *memory, records []router.Machine, runners map[int64]collect.RunnerState) (*evidence.Facts, error) {
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
		if err := m.disown(ctx, p, mem); err != nil {
			return nil, err
		}
	} else if err := m.book(ctx, p, mem, records, f); err != nil {
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
func (m *Machines) book(ctx context.Context, p Pool, mem *memory, records []router.Machine, f *evidence.Facts) error {
	readAt := m.Now()
	read, err := m.Registry.Routed(ctx, p.Name, p.Mode == evidence.RouteFront)
	if err != nil {
		return err
	}
	f.BookSince = mem.since(read.Since, read.At, m.Now())
	books := read.Machines
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
	return nil
}

// disownEvery is how often it is put down again that a book misses jobs.
const disownEvery = time.Hour

// disown puts down that jobs reach the pool's machines without being booked: a front that
// comes later must not take the book for one that has them.
func (m *Machines) disown(ctx context.Context, p Pool, mem *memory) error {
	if now := m.Now(); mem.disowned.IsZero() || now.Sub(mem.disowned) >= disownEvery {
		if _, err := m.Registry.Routed(ctx, p.Name, false); err != nil {
			return err
		}
		mem.disowned = now
	}
	return nil
}

// since is since when the book has every job, by our clock: as long ago as it is by the
// store's, reckoned from after the answer, so that it is rather later than earlier. The
// same book has the same time at each look.
func (mem *memory) since(since, at, now time.Time) time.Time {
	if !since.Equal(mem.bookSince) {
		mem.bookSince, mem.ourSince = since, now.Add(-at.Sub(since))
	}
	return mem.ourSince
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
