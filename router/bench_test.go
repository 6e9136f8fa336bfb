package router_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

func BenchmarkMatch(b *testing.B) {
	c := spillway.Capability{
		Tags: []string{"amd64", "docker", "linux", "shell", "x"}, Type: spillway.GroupType, Groups: []int64{3, 7, 9},
		Resources: spillway.Resources{MilliCPU: 4000, MemoryMiB: 8192, Features: []string{"docker", "gpu"}},
	}.Normalize()
	r := spillway.Requirement{
		Tags: []string{"docker", "linux"}, Project: 12, Groups: []int64{1, 7},
		Resources: spillway.Resources{MilliCPU: 1000, Features: []string{"docker"}},
	}.Normalize()
	b.ReportAllocs()
	for b.Loop() {
		if !router.Match(&c, &r).OK() {
			b.Fatal("must match")
		}
	}
}

// BenchmarkEngineCycle is jobs on their way from the queue to their end: queued,
// planned, claimed, accepted, started, finished; 1,000 machines in 5 pools and 20
// classes. A shell plans once for all that came in meanwhile, so batches are what
// happens under load and single jobs are what happens without.
func BenchmarkEngineCycle(b *testing.B) {
	for _, batch := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) { benchmarkCycle(b, batch) })
	}
}

func benchmarkCycle(b *testing.B, batch int) {
	const pools, classes, machines = 5, 20, 1000
	now := time.Unix(1_700_000_000, 0)
	e, counts := benchEngine(now, pools, classes, machines)
	b.ReportAllocs()
	jobs := 0
	var claims []router.Claimed
	start := time.Now()
	for b.Loop() {
		for range batch {
			count := counts[jobs%classes]
			count.Pending, count.Oldest = 1, now
			e.AddPending(count)
			jobs++
		}
		wants := e.Plan(now)
		claims = claims[:0]
		for _, w := range wants {
			for range w.N {
				id := spillway.JobID(fmt.Sprint(jobs, len(claims)))
				claims = append(claims, router.Claimed{
					Job:  spillway.Job{ID: id, Requirement: counts[classIndex(counts, w.Class)].Requirement},
					Ref:  router.JobRef{ID: id, Class: w.Class, Attempt: 1},
					Pool: w.Pool,
				})
			}
		}
		assigned, back := e.Claimed(now, wants, claims)
		if len(assigned) != batch || len(back) > 0 {
			b.Fatalf("%d of %d assigned, %d given back", len(assigned), batch, len(back))
		}
		now = now.Add(time.Millisecond)
		for _, a := range assigned {
			e.Accepted(now, a.Machine, a.Ref)
			e.Started(now, a.Machine, a.Ref)
			if !e.Finished(now, a.Machine, a.Ref) {
				b.Fatal("not finished")
			}
		}
		if jobs%1000 < batch { // keep the fleet heard
			for i := range machines {
				e.Heartbeat(now, machineID(i), 0, false, nil)
			}
		}
	}
	b.ReportMetric(float64(jobs)/time.Since(start).Seconds(), "jobs/s")
}

func machineID(i int) spillway.MachineID { return spillway.MachineID(fmt.Sprintf("m-%04d", i)) }

func classIndex(counts []router.ClassCount, id spillway.JobClass) int {
	for i := range counts {
		if counts[i].Class == id {
			return i
		}
	}
	return -1
}

func benchEngine(now time.Time, pools, classes, machines int) (*router.Engine, []router.ClassCount) {
	var ps []spillway.Pool
	for i := range pools {
		tags := []string{"docker", "linux", fmt.Sprintf("pool-%d", i)}
		ps = append(ps, spillway.Pool{
			Name: fmt.Sprintf("pool-%d", i), Priority: i, CapacityPerInstance: 2,
			Capability: spillway.Capability{Tags: tags, RunUntagged: true},
		})
	}
	e := router.NewEngine(ps, router.Options{})
	for i := range machines {
		e.Connect(now, router.Machine{ID: machineID(i), Pool: ps[i%pools].Name, Capacity: 2}, nil)
	}
	var counts []router.ClassCount
	for i := range classes {
		r := spillway.Requirement{Tags: []string{"docker"}, Project: int64(i + 1)}
		if i%4 == 0 {
			r.Tags = append(r.Tags, fmt.Sprintf("pool-%d", i%pools))
		}
		counts = append(counts, router.ClassCount{Class: r.Class(), Requirement: r, Priority: i % 3})
	}
	return e, counts
}

// BenchmarkChoice is one choice with 1,000 free machines of 10 pools and 10,000 queued jobs
// of 200 classes and 50 projects: which job, which pool, which machine. All at once is what
// a replica does that has just come up; one place is what happens when a job ends.
func BenchmarkChoice(b *testing.B) {
	b.Run("all", func(b *testing.B) {
		e, counts, refs := choiceEngine(b)
		for b.Loop() {
			for _, a := range refs {
				e.Finished(benchNow, a.Machine, a.Ref)
			}
			e.SetCounts(counts)
			refs = serveChoices(b, e, counts, 1000)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/choice")
	})
	b.Run("one", func(b *testing.B) {
		e, counts, _ := choiceEngine(b)
		e.SetCounts(counts)
		refs := serveChoices(b, e, counts, 1000)
		e.SetCounts(counts) // 10,000 jobs wait, and there is no place
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			at := i % len(refs)
			e.Finished(benchNow, refs[at].Machine, refs[at].Ref)
			refs[at] = serveChoices(b, e, counts, 1)[0]
			e.AddPending(one(counts, refs[at].Ref.Class))
		}
	})
}

var benchNow = time.Unix(1_700_000_000, 0)

func one(counts []router.ClassCount, class spillway.JobClass) router.ClassCount {
	c := counts[classIndex(counts, class)]
	c.Pending = 1
	return c
}

func choiceEngine(b *testing.B) (*router.Engine, []router.ClassCount, []router.Assignment) {
	b.Helper()
	var pools []spillway.Pool
	for i := range 10 {
		pools = append(pools, spillway.Pool{
			Name: fmt.Sprintf("pool-%d", i), Priority: i / 4, CapacityPerInstance: 1, CostPerJob: float64(i % 4),
			Capability: spillway.Capability{Tags: []string{"docker", "linux", fmt.Sprintf("kind-%d", i%5)}, RunUntagged: true},
		})
	}
	e := router.NewEngine(pools, router.Options{})
	for i := range 1000 {
		e.Connect(benchNow, router.Machine{ID: machineID(i), Pool: pools[i%len(pools)].Name, Capacity: 1}, nil)
	}
	var counts []router.ClassCount
	for i := range 200 {
		r := spillway.Requirement{Tags: []string{"docker"}, Project: int64(i%50 + 1)}
		if i%4 != 0 {
			r.Tags = append(r.Tags, fmt.Sprintf("kind-%d", i%5))
		}
		r.Resources.MilliCPU = 0
		r.Groups = []int64{int64(i)} // tells classes of one project apart
		counts = append(counts, router.ClassCount{
			Class: r.Class(), Requirement: r, Pending: 50, Priority: i % 3, Oldest: benchNow.Add(-time.Duration(i) * time.Second),
		})
	}
	return e, counts, nil
}

// serveChoices has all that the engine wants claimed and dealt out.
func serveChoices(b *testing.B, e *router.Engine, counts []router.ClassCount, want int) []router.Assignment {
	b.Helper()
	wants := e.Plan(benchNow)
	var got []router.Claimed
	for _, w := range wants {
		r := counts[classIndex(counts, w.Class)].Requirement
		for range w.N {
			benchJobs++
			id := spillway.JobID(fmt.Sprint(benchJobs))
			got = append(got, router.Claimed{
				Job:  spillway.Job{ID: id, Name: "test", Requirement: r},
				Ref:  router.JobRef{ID: id, Class: w.Class, Attempt: 1},
				Pool: w.Pool,
			})
		}
	}
	assigned, back := e.Claimed(benchNow, wants, got)
	if len(assigned) != want || len(back) > 0 {
		b.Fatalf("%d of %d assigned, %d given back", len(assigned), want, len(back))
	}
	return assigned
}

var benchJobs int

// BenchmarkExplainChoice is one explanation with 5,000 pools of one priority, all with a
// free machine: half of them can't take the job, and come first.
func BenchmarkExplainChoice(b *testing.B) {
	pools := make([]spillway.Pool, spillway.MaxPools)
	for i := range pools {
		tags := []string{"docker", fmt.Sprintf("kind-%d", i)}
		if i >= len(pools)/2 {
			tags = append(tags, "linux")
		}
		pools[i] = spillway.Pool{Name: fmt.Sprintf("pool-%04d", i), CapacityPerInstance: 1, Capability: spillway.Capability{Tags: tags}}
	}
	e := router.NewEngine(pools, router.Options{})
	for i := range pools {
		e.Connect(benchNow, router.Machine{ID: machineID(i), Pool: pools[i].Name, Capacity: 1}, nil)
	}
	job := &spillway.Job{ID: "1", Requirement: spillway.Requirement{Tags: []string{"linux"}}, SubmittedAt: benchNow}
	b.ReportAllocs()
	for b.Loop() {
		if x := e.ExplainChoice(benchNow, job); len(x.Pools) != len(pools) {
			b.Fatalf("%d pools", len(x.Pools))
		}
	}
}

// BenchmarkPlanOfABurst is a plan for a free place here and one of another cell, while a
// burst of jobs of two projects is too young for that.
func BenchmarkPlanOfABurst(b *testing.B) {
	for _, jobs := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
			own := spillway.Pool{Name: "own", CapacityPerInstance: 1, Capability: spillway.Capability{RunUntagged: true}}
			cell := own
			cell.Name, cell.Priority, cell.LeastWait = "cell", spillway.MaxPoolPriority, time.Minute
			e := router.NewEngine([]spillway.Pool{own, cell}, router.Options{})
			e.Connect(benchNow, router.Machine{ID: "here", Pool: "own", Capacity: 1}, nil)
			e.Connect(benchNow, router.Machine{ID: "there", Pool: "cell", Capacity: 1}, nil)
			var counts []router.ClassCount
			for project := range int64(2) {
				r := spillway.Requirement{Project: project + 1}
				counts = append(counts, router.ClassCount{Class: r.Class(), Requirement: r, Pending: jobs / 2, Oldest: benchNow})
			}
			b.ReportAllocs()
			for b.Loop() {
				e.SetCounts(counts)
				wants := e.Plan(benchNow)
				if len(wants) != 1 {
					b.Fatalf("%d wants", len(wants))
				}
				e.Claimed(benchNow, wants, nil)
			}
		})
	}
}
