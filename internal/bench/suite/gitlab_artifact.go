package suite

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// maxArtifactMegabytes is what a large artifact may cost the front proxy above idle.
const maxArtifactMegabytes = 16

// artifactWarmup is a transfer for what is made once [bytes].
const artifactWarmup = 1 << 20

func gitlabArtifact() Benchmark {
	return Benchmark{"gitlab/artifact", "an artifact up and down, directly and through the front proxy", runArtifact}
}

func runArtifact(ctx context.Context, b *bench) error {
	return withGitLab(ctx, b, gitlabShape{
		pools: 1, group: asgstub.GroupConfig{Max: reactMax, NewInstancesProtected: true},
		policy: map[string]any{"max": reactMax, "register_timeout": "24h"},
		route:  map[string]any{"front": true}, pool: routePool, before: artifactStore,
	}, artifacts)
}

func artifacts(ctx context.Context, b *bench, s *gitlabStand) error {
	p, err := s.start(ctx, "spillway")
	if err != nil {
		return err
	}
	plain, err := startPlainProxy(ctx, s.gitlab.url)
	if err != nil {
		return err
	}
	defer plain.Stop()
	size := int64(b.pick(1<<30, 128<<20))
	t := &artifactTrips{size: size, plane: p}
	front := "http://" + p.log.at.GitLab
	if err := t.idle(ctx, front); err != nil {
		return err
	}
	all, err := measure.RoundsOf(ctx, b.Rounds, 2, []measure.Work{
		{Name: "directly", Run: t.through(s.gitlab.url)},
		{Name: "through the front proxy", Run: t.measured(front)},
		{Name: "through a plain httputil.ReverseProxy", Run: t.through(plain.url)},
	})
	if err != nil {
		return err
	}
	for figure, prefix := range []string{"upload ", "download "} {
		addArtifactRows(b, prefix, all[figure])
	}
	t.rows(b)
	b.note("%d MiB as a runner sends it: a form, in chunks, of an unknown length; a plain HTTP connection each. Runner and GitLab are this process, control plane and the plain proxy one each, on %d CPUs; this GitLab throws away what comes and makes up what goes, as fast as it can", size>>20, runtime.NumCPU())
	return nil
}

func addArtifactRows(b *bench, prefix string, series []measure.Series) {
	for i := range series {
		series[i].Name = prefix + series[i].Name
	}
	b.add(measure.ReferenceRow(series[0], "MB/s"))
	for _, s := range series[1:] {
		b.add(measure.RowOf(s, "MB/s").Against(s, series[0]))
	}
}

// artifactTrips sends a job's artifact up and down.
type artifactTrips struct {
	size  int64 // bytes
	plane *planeProcess

	resting [2]int64   // memory of the control plane when idle: now, and the most [bytes]
	most    [2][]int64 // the most while an artifact went up, and down [bytes]
	known   bool       // peaks can be told
}

// idle notes what the control plane has without a transfer, once all is made that is made
// once.
func (t *artifactTrips) idle(ctx context.Context, front string) error {
	small := *t
	small.size = artifactWarmup
	if _, err := small.through(front)(ctx); err != nil {
		return err
	}
	if t.known = measure.ResetPeak(t.plane.pid()); !t.known {
		return nil
	}
	if err := wait(ctx, 2*reactTick); err != nil {
		return err
	}
	u, ok := measure.UsageOf(t.plane.pid())
	t.known, t.resting = ok, [2]int64{u.Resident, u.Peak}
	return nil
}

// through is one turn: up and down by way of url [MB/s].
func (t *artifactTrips) through(url string) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) ([]float64, error) {
		up, err := t.rate(ctx, url, uploadArtifact)
		if err != nil {
			return nil, fmt.Errorf("upload: %w", err)
		}
		down, err := t.rate(ctx, url, downloadArtifact)
		if err != nil {
			return nil, fmt.Errorf("download: %w", err)
		}
		return []float64{up, down}, nil
	}
}

// measured is through, with a look at the most memory that each way took.
func (t *artifactTrips) measured(url string) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) ([]float64, error) {
		rates := make([]float64, 2)
		for way, transfer := range []transfer{uploadArtifact, downloadArtifact} {
			reset := measure.ResetPeak(t.plane.pid())
			var err error
			if rates[way], err = t.rate(ctx, url, transfer); err != nil {
				return nil, err
			}
			u, ok := measure.UsageOf(t.plane.pid())
			t.known = t.known && reset && ok
			t.most[way] = append(t.most[way], u.Peak)
		}
		return rates, nil
	}
}

func (t *artifactTrips) rate(ctx context.Context, url string, transfer transfer) (float64, error) {
	began := time.Now()
	if err := transfer(ctx, url, t.size); err != nil {
		return 0, err
	}
	return float64(t.size) / 1e6 / time.Since(began).Seconds(), nil
}

// rows adds what the transfers took of memory, above the most that idling took.
func (t *artifactTrips) rows(b *bench) {
	if !t.known {
		b.add(measure.SkippedRow("memory", "this system does not tell the peak of a process"))
		return
	}
	for way, name := range []string{"upload", "download"} {
		most := int64(math.MinInt64)
		for _, bytes := range t.most[way] {
			most = max(most, bytes)
		}
		row := measure.RowOf(megabytes(name+": memory above idle at the peak", most-t.resting[1]), "MB").Judged(measure.ValueAtMost(maxArtifactMegabytes))
		row.Exact = true // no load of the machine makes it larger
		b.add(row)
	}
	b.add(measure.RowOf(megabytes("memory when idle, at the peak", t.resting[1]), "MB"))
}
