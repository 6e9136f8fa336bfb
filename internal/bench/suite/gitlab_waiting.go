package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// maxWaitingMegabytes is what openCalls may cost above idle.
const maxWaitingMegabytes = 100

const (
	// openCalls is how many runners wait for a job at one replica.
	openCalls = 2_000
	// waitingTimeout is how long they may take until all of them wait.
	waitingTimeout = 2 * time.Minute
	// residentLook is how often memory is looked at.
	residentLook = 250 * time.Millisecond
)

func gitlabWaiting() Benchmark {
	return Benchmark{"gitlab/waiting", "memory of a control plane at which runners wait in GetJob", runWaiting}
}

func runWaiting(ctx context.Context, b *bench) error {
	schemes := []string{"grpc", "ws"}
	for _, scheme := range schemes[:b.pick(len(schemes), 1)] {
		err := withGitLab(ctx, b, gitlabShape{
			pools: 1, group: asgstub.GroupConfig{Min: openCalls, Desired: openCalls, Max: openCalls, NewInstancesProtected: true},
			policy: map[string]any{"min": openCalls, "max": openCalls, "register_timeout": "24h"},
			route:  map[string]any{"front": true}, tunnel: scheme == "ws", pool: routePool,
		}, func(ctx context.Context, b *bench, s *gitlabStand) error { return waiting(ctx, b, s, scheme) })
		if err != nil {
			return err
		}
	}
	b.note("%d runners as GitLab's are on the wire, with a connection each, on as many instances of one pool; they are one other process. All defaults: a question is held for 50 s, and a runner asks again at its tick of 3 s; memory is what was resident at each look, garbage and all, with what the scaler does for so many machines",
		openCalls)
	return nil
}

func waiting(ctx context.Context, b *bench, s *gitlabStand, scheme string) error {
	p, err := s.start(ctx, "spillway")
	if err != nil {
		return err
	}
	idle, err := p.resident(ctx, 2*reactTick)
	if err != nil {
		return err
	}
	instances := make([]string, openCalls)
	for i, in := range s.cloud.Existing(groupName(0)) {
		instances[i] = in.ID
	}
	began := time.Now()
	runners, err := startRunnersProcess(ctx, "http://"+p.log.at.GitLab, s.token, instances)
	if err != nil {
		return err
	}
	defer runners.Stop()
	if err := p.untilWaiting(ctx, openCalls); err != nil {
		return err
	}
	all := measure.Series{Name: scheme + ": until all wait", Figures: []float64{time.Since(began).Seconds()}}
	// Longer than a question is held: each runner asks once more.
	held, err := p.resident(ctx, time.Duration(b.pick(70, 10))*time.Second)
	if err != nil {
		return err
	}
	did, err := runners.did(ctx)
	if err != nil {
		return err
	}
	waitingRows(b, scheme, idle, held)
	b.add(
		measure.RowOf(all, "s"),
		measure.Exactly(scheme+": questions that runners put to GitLab itself", "calls", did.direct, 0),
		measure.Exactly(scheme+": times that a runner took the router for ill", "times", did.trips, 0),
	)
	b.note("%s: %d calls of GetJob in all", scheme, did.getJobs)
	return nil
}

// waitingRows compares what was resident with the calls and without [MB].
func waitingRows(b *bench, scheme string, idle, held measure.Series) {
	rest := idle.Spread().Median
	total, each := measure.Series{Name: fmt.Sprintf("%s: memory of %d open calls above idle", scheme, openCalls)}, measure.Series{Name: scheme + ": memory per call"}
	for _, mb := range held.Figures {
		total.Figures = append(total.Figures, mb-rest)
		each.Figures = append(each.Figures, (mb-rest)*1e6/1024/openCalls)
	}
	row := measure.RowOf(total, "MB").Judged(measure.ValueAtMost(maxWaitingMegabytes))
	row.Exact = true // no load of the machine makes it larger
	idle.Name = scheme + ": memory when idle"
	b.add(row, measure.RowOf(each, "KiB"), measure.RowOf(idle, "MB"))
}

func megabytes(name string, bytes int64) measure.Series {
	return measure.Series{Name: name, Figures: []float64{float64(bytes) / 1e6}}
}

// resident is the memory of the control plane at each look for a while [MB].
func (p *planeProcess) resident(ctx context.Context, d time.Duration) (measure.Series, error) {
	var looks measure.Series
	for end := time.Now().Add(d); time.Now().Before(end); {
		u, ok := measure.UsageOf(p.pid())
		if !ok {
			return looks, fmt.Errorf("%w: there is no /proc on this system, or no control plane", errSkipped)
		}
		looks.Figures = append(looks.Figures, float64(u.Resident)/1e6)
		if err := wait(ctx, residentLook); err != nil {
			return looks, err
		}
	}
	return looks, nil
}

// waitingGauge counts the runners that wait at a replica; it is set every few seconds.
const waitingGauge = "spillway_gitlab_waiting_runners"

// untilWaiting returns once so many runners wait.
func (p *planeProcess) untilWaiting(ctx context.Context, n int) error {
	const every = 200 * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, waitingTimeout, fmt.Errorf("not %d runners wait within %s", n, waitingTimeout))
	defer cancel()
	for {
		v, err := readGauge(ctx, p.log.at.Metrics, waitingGauge)
		if err != nil {
			return err
		}
		if int(v) >= n {
			return nil
		}
		if err := wait(ctx, every); err != nil {
			return err
		}
	}
}

// readGauge reads one metric without labels.
func readGauge(ctx context.Context, addr, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	page, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = page.Body.Close() }()
	for lines := bufio.NewScanner(page.Body); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.New("there is no metric " + name)
}
