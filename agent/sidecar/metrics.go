package sidecar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/spillway-ci/spillway"
)

const (
	// scrapeWithin bounds one look at the metrics: they are on this machine.
	scrapeWithin = 2 * time.Second
	// maxMetricsBytes bounds the answer. A runner's is some 20 KiB.
	maxMetricsBytes = 4 << 20
)

// ErrMetrics says that the runner's metrics can't be read, or are not a runner's.
var ErrMetrics = errors.New("the runner's metrics")

// The metrics that a gitlab-runner exports. The first has a series for each state in
// which jobs are, and one of the state idle that is 0, but only since the runner has
// asked for a job (before 14.6 it has none at all without a job).
const (
	metricPrefix     = "gitlab_runner_"
	metricJobs       = "gitlab_runner_jobs"
	metricConcurrent = "gitlab_runner_concurrent"
	metricLimit      = "gitlab_runner_limit"
)

// reading is what the metrics say.
type reading struct {
	jobs     int // that run
	capacity int // that could; 0 = not said
}

// newClient has no proxy, follows nothing and keeps no connection: what is asked is on
// this machine, and may be another process the next time.
func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// scrape asks for the metrics once.
func scrape(ctx context.Context, client *http.Client, url string) (reading, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return reading{}, fmt.Errorf("%w: %w", ErrMetrics, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return reading{}, fmt.Errorf("%w: %w", ErrMetrics, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return reading{}, fmt.Errorf("%w: %s says %s", ErrMetrics, url, response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMetricsBytes+1))
	switch {
	case err != nil:
		return reading{}, fmt.Errorf("%w: %w", ErrMetrics, err)
	case len(body) > maxMetricsBytes:
		return reading{}, fmt.Errorf("%w: more than %d bytes", ErrMetrics, maxMetricsBytes)
	case strings.HasPrefix(response.Header.Get("Content-Type"), "text/html"):
		return reading{}, fmt.Errorf("%w: %s serves a web page, no metrics", ErrMetrics, url)
	}
	return parse(body)
}

// parse reads the text format. What is no number of jobs makes the whole an error: a
// wrong number could end a job.
func parse(body []byte) (reading, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return reading{}, fmt.Errorf("%w: not in Prometheus' text format", ErrMetrics) // the parser repeats what it read
	}
	if !ofARunner(families) {
		return reading{}, fmt.Errorf("%w: nothing in them begins with %s: they are another program's", ErrMetrics, metricPrefix)
	}
	jobs, err := sum(families[metricJobs])
	if err != nil {
		return reading{}, err
	}
	capacity, err := capacity(families)
	return reading{jobs: jobs, capacity: capacity}, err
}

func ofARunner(families map[string]*dto.MetricFamily) bool {
	for name := range families {
		if strings.HasPrefix(name, metricPrefix) {
			return true
		}
	}
	return false
}

// capacity is what the process runs at once: its concurrent, or less where each of its
// runners has a limit and these make less. A limit of 0 is none.
func capacity(families map[string]*dto.MetricFamily) (int, error) {
	concurrent, err := sum(families[metricConcurrent])
	if err != nil {
		return 0, err
	}
	limits := families[metricLimit].GetMetric()
	for _, m := range limits {
		if limit, err := whole(metricLimit, m); err != nil || limit == 0 {
			return concurrent, err
		}
	}
	limit, err := sum(families[metricLimit])
	if err != nil || len(limits) == 0 || concurrent == 0 {
		return concurrent, err
	}
	return min(concurrent, limit), nil
}

// sum of a family; one that isn't exported is 0.
func sum(family *dto.MetricFamily) (int, error) {
	total := 0
	for _, m := range family.GetMetric() {
		n, err := whole(family.GetName(), m)
		if err != nil {
			return 0, err
		}
		total = min(total+n, spillway.MaxCapacityPerInst)
	}
	return total, nil
}

// whole is the value of a series, which must be a number of jobs.
func whole(name string, m *dto.Metric) (int, error) {
	value := math.NaN()
	switch {
	case m.GetGauge() != nil:
		value = m.GetGauge().GetValue()
	case m.GetUntyped() != nil:
		value = m.GetUntyped().GetValue()
	case m.GetCounter() != nil:
		value = m.GetCounter().GetValue()
	}
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 || value != math.Trunc(value) {
		return 0, fmt.Errorf("%w: %s is %v, which is no number of jobs", ErrMetrics, name, value)
	}
	return int(min(value, spillway.MaxCapacityPerInst)), nil
}
