package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/internal/bench/measure"
	"github.com/spillway-ci/spillway/router"
)

// maxSelectMicros is what one choice of a job, a pool and a machine may take: it is a
// twentieth of what the store needs to claim the job.
const maxSelectMicros = 50

// The fleet that is chosen among.
const (
	selectMachines = 1_000
	selectPools    = 10
	selectClasses  = 200
	selectProjects = 50
	selectJobs     = 10_000
)

func routerSelect() Benchmark {
	return Benchmark{"router/select", "one choice of a job and its machine, fair shares of 50 projects", runSelect}
}

func runSelect(ctx context.Context, b *bench) error {
	calls := b.pick(5_000, 500)
	s := newSelection()
	const size = "1,000 free machines, 10,000 jobs, 200 classes"
	all, err := measure.Rounds(ctx, b.Rounds, []measure.Subject{
		{Name: "match each class with each machine once: " + size, Run: s.matchAll},
		{Name: "one choice of 1,000 at once: " + size, Run: s.all},
		{Name: "one choice, a place becomes free: 1,000 machines, 10,000 jobs, 200 classes", Run: s.one(calls)},
	})
	if err != nil {
		return err
	}
	b.add(measure.ReferenceRow(all[0], "µs"))
	for _, series := range all[1:] {
		b.add(measure.RowOf(series, "µs").Against(series, all[0]).Judged(measure.ValueAtMost(maxSelectMicros)))
	}
	b.note("from the plan to the machine, without the store between them; each choice counts who of which project has how many running")
	return nil
}

// selection is an engine with a fleet, and the queue as it is told of it.
type selection struct {
	engine *router.Engine
	pools  []spillway.Pool
	counts []router.ClassCount
	needs  map[spillway.JobClass]spillway.Requirement
	given  []router.Assignment // what has a place now
	jobs   int
	now    time.Time
}

func newSelection() *selection {
	s := &selection{now: time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC), needs: make(map[spillway.JobClass]spillway.Requirement)}
	for i := range selectPools {
		s.pools = append(s.pools, spillway.Pool{
			Name: fmt.Sprintf("pool-%d", i), Priority: i / 4, CostPerJob: float64(i % 4), CapacityPerInstance: 1,
			Capability: spillway.Capability{Tags: []string{"docker", fmt.Sprintf("kind-%d", i%5)}}.Normalize(),
		})
	}
	s.engine = router.NewEngine(s.pools, router.Options{})
	for i := range selectMachines {
		id := spillway.MachineID(fmt.Sprintf("machine-%d", i))
		s.engine.Connect(s.now, router.Machine{ID: id, Pool: s.pools[i%selectPools].Name, Capacity: 1}, nil)
	}
	for i := range selectClasses {
		r := spillway.Requirement{Tags: []string{"docker"}, Project: int64(i%selectProjects + 1), Groups: []int64{int64(i + 1)}}
		if i%4 != 0 {
			r.Tags = append(r.Tags, fmt.Sprintf("kind-%d", i%5))
		}
		r = r.Normalize()
		s.needs[r.Class()] = r
		s.counts = append(s.counts, router.ClassCount{
			Class: r.Class(), Requirement: r, Pending: selectJobs / selectClasses, Priority: i % 3,
			Oldest: s.now.Add(-time.Duration(i) * time.Second),
		})
	}
	return s
}

// matchAll is the least that a choice does that knows of nothing before.
func (s *selection) matchAll(context.Context) (float64, error) {
	began, fits := time.Now(), 0
	for i := range s.counts {
		for m := range selectMachines {
			if router.Match(&s.pools[m%selectPools].Capability, &s.counts[i].Requirement).OK() {
				fits++
			}
		}
	}
	if fits == 0 {
		return 0, fmt.Errorf("no machine can take any job")
	}
	return micros(time.Since(began)), nil
}

func (s *selection) all(context.Context) (float64, error) {
	s.empty()
	began := time.Now()
	if err := s.serve(selectMachines); err != nil {
		return 0, err
	}
	return micros(time.Since(began)) / selectMachines, nil
}

// one measures choices while nothing else is free.
func (s *selection) one(calls int) func(context.Context) (float64, error) {
	return func(context.Context) (float64, error) {
		s.empty()
		if err := s.serve(selectMachines); err != nil {
			return 0, err
		}
		s.engine.SetCounts(s.counts) // as many wait as before
		began := time.Now()
		for range calls {
			ended := s.given[0]
			s.given = s.given[1:]
			s.engine.Finished(s.now, ended.Machine, ended.Ref)
			if err := s.serve(1); err != nil {
				return 0, err
			}
			last := s.given[len(s.given)-1]
			s.engine.AddPending(router.ClassCount{Class: last.Ref.Class, Requirement: s.needs[last.Ref.Class], Pending: 1, Oldest: s.now})
		}
		return micros(time.Since(began)) / float64(calls), nil
	}
}

// empty ends all jobs.
func (s *selection) empty() {
	for _, a := range s.given {
		s.engine.Finished(s.now, a.Machine, a.Ref)
	}
	s.given = nil
	s.engine.SetCounts(s.counts)
}

// serve gives every free place a job.
func (s *selection) serve(want int) error {
	wants := s.engine.Plan(s.now)
	var got []router.Claimed
	for _, w := range wants {
		for range w.N {
			s.jobs++
			id := spillway.JobID(fmt.Sprint(s.jobs))
			got = append(got, router.Claimed{
				Job: spillway.Job{ID: id, Name: "test", Requirement: s.needs[w.Class]}, Ref: router.JobRef{ID: id, Class: w.Class, Attempt: 1}, Pool: w.Pool,
			})
		}
	}
	assigned, back := s.engine.Claimed(s.now, wants, got)
	if len(assigned) != want || len(back) > 0 {
		return fmt.Errorf("%d of %d jobs found a place, %d were given back", len(assigned), want, len(back))
	}
	s.given = append(s.given, assigned...)
	return nil
}
