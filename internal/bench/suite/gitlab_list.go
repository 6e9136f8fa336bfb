package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/bench/measure"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

// The targets of a list of a GitLab's pending jobs.
const (
	maxListSeconds   = 60 // of API time
	maxListMegabytes = 200
)

const (
	// listPage is how many jobs a page has: GitLab's maximum.
	listPage = 100
	// listLatency is how long a GitLab far away takes for a page.
	listLatency = 30 * time.Millisecond
	// listSizes is how many classes each pool's jobs make.
	listSizes = 10
	// listTimeout bounds one list.
	listTimeout = 5 * time.Minute
)

func gitlabList() Benchmark {
	return Benchmark{"gitlab/list", "GitLab's pending jobs are listed by the API → they are demand, by class", runList}
}

func runList(ctx context.Context, b *bench) error {
	l := &listing{jobs: b.pick(100_000, 10_000), every: config.DefaultJobsEvery}
	if b.Short {
		l.every = 2 * time.Second
	}
	return withGitLab(ctx, b, gitlabShape{
		pools: 40, group: asgstub.GroupConfig{Max: 1, NewInstancesProtected: true},
		policy: map[string]any{"max": 1, "register_timeout": "24h"},
		section: map[string]any{
			"api_token": fromVariable(apiTokenVariable),
			// The budget is not what is measured: by default it stretches a list of this length.
			"jobs": map[string]any{"every": l.every.String(), "requests_per_minute": config.MaxRequests},
		},
		pool: func(i int) map[string]any {
			return map[string]any{"mode": "observe", "capability": map[string]any{"tags": listTags(i)}}
		},
		before: l.watch.before,
	}, l.run)
}

// listTags are what pool i takes.
func listTags(i int) []string {
	tags := []string{poolTag(i)}
	for size := range listSizes {
		tags = append(tags, sizeTag(size))
	}
	return tags
}

func sizeTag(size int) string { return fmt.Sprintf("size-%d", size) }

// listing is the benchmark under way.
type listing struct {
	jobs   int           // that are pending
	every  time.Duration // between two lists
	watch  listWatch
	stand  *gitlabStand
	plane  *planeProcess
	admin  adminv1.AdminServiceClient
	marker int64 // the job of which there is one in each list
	turns  int
}

// listTook is what one list showed.
type listTook struct {
	requests int
	asked    time.Duration // first request → last answer
	shown    time.Duration // first request → the jobs are demand
	server   time.Duration // of asked, in the stand-in
	cpu      time.Duration // of the control plane, until it was shown
}

func (l *listing) run(ctx context.Context, b *bench, s *gitlabStand) (err error) {
	l.stand = s
	if l.plane, err = s.start(ctx, "spillway"); err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+l.plane.log.at.API, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	l.admin = adminv1.NewAdminServiceClient(conn)
	idle, err := l.plane.resident(ctx, 2*reactTick)
	if err != nil {
		return err
	}
	for i := range l.jobs - 1 { // and the marker
		s.gitlab.Enqueue(gitlabtest.JobSpec{Project: s.project, Tags: []string{poolTag(i % s.shape.pools), sizeTag(i / s.shape.pools % listSizes)}})
	}
	var near []listTook
	for range b.Rounds {
		took, err := l.turn(ctx)
		if err != nil {
			return err
		}
		near = append(near, took)
	}
	s.gitlab.Fail(gitlabtest.Fault{Route: gitlabtest.RouteGraphQL, Delay: listLatency})
	far, err := l.turn(ctx)
	if err != nil {
		return err
	}
	l.rows(b, near, far)
	u, ok := measure.UsageOf(l.plane.pid())
	if !ok {
		return errors.New("the control plane has gone")
	}
	peak := measure.RowOf(megabytes("memory of the control plane at the peak of all lists", u.Peak), "MB").Judged(measure.ValueAtMost(maxListMegabytes))
	peak.Exact = true // no load of the machine makes it larger
	idle.Name = "memory of the control plane without a job"
	b.add(peak, measure.RowOf(idle, "MB"))
	return nil
}

// turn changes one job for another, and waits until that is demand: the list that shows
// it is the one that is looked at.
func (l *listing) turn(ctx context.Context) (listTook, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, fmt.Errorf("no list was shown within %s", listTimeout))
	defer cancel()
	if l.marker != 0 {
		l.stand.gitlab.Cancel(l.marker)
	}
	l.turns++
	tag := fmt.Sprintf("turn-%d", l.turns)
	changed := time.Now()
	l.marker = l.stand.gitlab.Enqueue(gitlabtest.JobSpec{Project: l.stand.project, Tags: []string{tag}})
	// One that is under way began before the change, and may show half of it.
	if err := until(ctx, listTimeout, "no list was begun", func() bool { _, ok := l.watch.since(changed); return ok }); err != nil {
		return listTook{}, err
	}
	before, _ := measure.UsageOf(l.plane.pid())
	if err := l.untilDemand(ctx, tag); err != nil {
		return listTook{}, err
	}
	shown := time.Now()
	after, _ := measure.UsageOf(l.plane.pid())
	seen, _ := l.watch.since(changed)
	return listTook{
		requests: seen.requests, asked: seen.last.Sub(seen.first), shown: shown.Sub(seen.first), server: seen.server, cpu: after.CPU - before.CPU,
	}, nil
}

// untilDemand returns once all jobs are demand, and among them one with this tag.
func (l *listing) untilDemand(ctx context.Context, tag string) error {
	const every = 20 * time.Millisecond
	for {
		view, err := l.admin.ListDemand(ctx, &adminv1.ListDemandRequest{})
		if err != nil {
			return err
		}
		pending, marked := 0, false
		for _, class := range view.GetClasses() {
			pending += int(class.GetPending())
			tags := class.GetRequirement().GetTags()
			marked = marked || len(tags) == 1 && tags[0] == tag
		}
		switch {
		case marked && pending == l.jobs:
			return nil
		case marked:
			return fmt.Errorf("%d jobs are demand, and %d are pending", pending, l.jobs)
		}
		if err := wait(ctx, every); err != nil {
			return err
		}
	}
}

func (l *listing) rows(b *bench, near []listTook, far listTook) {
	pages := (l.jobs + listPage - 1) / listPage
	asked, shown := measure.Series{Name: "first request → last answer"}, measure.Series{Name: "first request → all jobs are demand"}
	server, cpu := measure.Series{Name: "of it, the stand-in's own time"}, measure.Series{Name: "CPU of the control plane a list"}
	most, least := far.requests, far.requests
	for _, t := range near {
		asked.Figures = append(asked.Figures, t.asked.Seconds())
		shown.Figures = append(shown.Figures, t.shown.Seconds())
		server.Figures = append(server.Figures, t.server.Seconds())
		cpu.Figures = append(cpu.Figures, t.cpu.Seconds())
		most, least = max(most, t.requests), min(least, t.requests)
	}
	distant := measure.Series{Name: fmt.Sprintf("first request → last answer, %s a request", listLatency), Figures: []float64{far.asked.Seconds()}}
	b.add(
		measure.Exactly("requests of the shortest list", "requests", least, pages),
		measure.Exactly("requests of the longest list", "requests", most, pages),
		measure.RowOf(asked, "s").Judged(measure.ValueAtMost(maxListSeconds)),
		measure.RowOf(server, "s"),
		measure.RowOf(shown, "s"),
		measure.RowOf(cpu, "s"),
		measure.RowOf(distant, "s").Judged(measure.ValueAtMost(maxListSeconds)),
	)
	b.note("%d pending jobs of %d classes, %d pools; the control plane lists anew every %s, and keeps the list before meanwhile", l.jobs, l.stand.shape.pools*listSizes+1, l.stand.shape.pools, l.every)
	b.note("the budget of API calls is set to %d a minute here; with the default of %d the same list takes %s, whatever GitLab's speed",
		config.MaxRequests, config.DefaultRequestsPerMinute, budgetTime(pages, config.DefaultRequestsPerMinute).Round(time.Second))
}

// budgetTime is how long so many calls take at least by a budget: a quarter of a minute's
// goes at once, the rest evenly.
func budgetTime(calls, perMinute int) time.Duration {
	burst := perMinute / 4
	return time.Duration(max(0, calls-burst)) * time.Minute / time.Duration(perMinute-burst)
}
