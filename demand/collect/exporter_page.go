package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"mime"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	// MaxPageBytes bounds a page of metrics [bytes]: that of a runner manager with some
	// hundred runners and all their histograms is a tenth of it.
	MaxPageBytes = 4 << 20
	// maxPageJobs bounds what a page is believed to say [jobs].
	maxPageJobs = 1_000_000
	// maxPageSystems bounds the system_ids of one page: a process has one, and keeps it.
	maxPageSystems = 64
)

// The names of gitlab-runner's metrics.
const (
	runnerPrefix     = "gitlab_runner_"
	poolPrefix       = "gitlab_runner_pool_"      // no runner's, but a fleet's: the control plane has such
	runnerJobs       = "gitlab_runner_jobs"       // idle: one series with 0, or none before the first job request
	runnerJobsTotal  = "gitlab_runner_jobs_total" // jobs that it ever took
	runnerConcurrent = "gitlab_runner_concurrent"
	runnerLimit      = "gitlab_runner_limit" // of each [[runners]] section; 0 = none
	systemLabel      = "system_id"
)

// ScrapeReason is why a page could not be read, in one of few words.
type ScrapeReason string

// The reasons.
const (
	ScrapeUnreachable ScrapeReason = "unreachable" // nobody answers
	ScrapeTimeout     ScrapeReason = "timeout"
	ScrapeUntrusted   ScrapeReason = "untrusted"   // the certificate
	ScrapeStatus      ScrapeReason = "status"      // a redirect, too
	ScrapeNotMetrics  ScrapeReason = "not_metrics" // a web page, garbage, cut off, too large
	ScrapeNoRunner    ScrapeReason = "no_runner"   // metrics of something else
	ScrapeBadValue    ScrapeReason = "bad_value"
)

// ScrapeError says in a sentence why the metrics of an instance could not be read, and
// what to do.
type ScrapeError struct {
	Reason  ScrapeReason
	Message string
}

// Error is the sentence.
func (e *ScrapeError) Error() string { return e.Message }

func scrapeErrorf(reason ScrapeReason, format string, args ...any) *ScrapeError {
	return &ScrapeError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// reasonOf is empty for nil.
func reasonOf(err error) ScrapeReason {
	var e *ScrapeError
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// page is what a runner's metrics say.
type page struct {
	jobs       int
	concurrent int // jobs at once; 0 = not said
	total      float64
	systems    []string
}

// fetch reads the page at an address. Its error is a *ScrapeError.
func (p *exporterPool) fetch(ctx context.Context, address string) (page, error) {
	scheme := "http"
	if p.TLS {
		scheme = "https"
	}
	url := scheme + "://" + address + p.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return page{}, scrapeErrorf(ScrapeUnreachable, "%q is no address: correct observe.metrics", clip(url))
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	resp, err := p.client.Do(req)
	if err != nil {
		return page{}, unanswered(url, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing more is wanted of it
	if err := checkHead(url, resp); err != nil {
		return page{}, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxPageBytes+1))
	switch {
	case err != nil:
		return page{}, unanswered(url, err)
	case len(body) > MaxPageBytes:
		return page{}, scrapeErrorf(ScrapeNotMetrics, "%s answers with more than %d bytes: a runner's page is far smaller", url, MaxPageBytes)
	}
	return parsePage(url, body)
}

// unanswered says why there was no answer, or no whole one.
func unanswered(url string, err error) *ScrapeError {
	reason, why := networkFault(err)
	return scrapeErrorf(reason, "%s %s", url, why)
}

// checkHead refuses an answer that can't be a whole page of metrics.
func checkHead(url string, resp *http.Response) error {
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return scrapeErrorf(ScrapeStatus, "%s redirects to %q: name the address where the runner itself answers", url, clip(redirectTo(resp)))
	}
	if resp.StatusCode != http.StatusOK {
		return scrapeErrorf(ScrapeStatus, "%s answers with status %d: the runner's listen_address or observe.metrics.path is another", url, resp.StatusCode)
	}
	// Nothing would tell a page that was cut off from a whole one, and what was cut off
	// would be no job.
	if resp.ProtoMajor < 2 && resp.ContentLength < 0 && !slices.Contains(resp.TransferEncoding, "chunked") {
		return scrapeErrorf(ScrapeNotMetrics, "%s doesn't say where its answer ends: something between us and the runner speaks HTTP/1.0", url)
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || expfmt.ResponseFormat(resp.Header).FormatType() != expfmt.TypeTextPlain {
		return scrapeErrorf(ScrapeNotMetrics, "%s answers with %q instead of metrics: observe.metrics.port or path is of something else", url, clip(kind))
	}
	return nil
}

// parsePage reads a whole page. A runner that shows itself and no job has none.
func parsePage(url string, body []byte) (page, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return page{}, scrapeErrorf(ScrapeNotMetrics, "%s answers with what are no metrics: %s", url, clip(err.Error()))
	}
	var (
		out     page
		series  int
		systems = make(map[string]bool)
	)
	for name, family := range families {
		if !strings.HasPrefix(name, runnerPrefix) || strings.HasPrefix(name, poolPrefix) {
			continue
		}
		series += len(family.GetMetric())
		noteSystems(systems, family)
	}
	if series == 0 {
		return page{}, scrapeErrorf(ScrapeNoRunner, "%s has metrics, but none of a GitLab runner: observe.metrics.port is of something else", url)
	}
	out.systems = slices.Sorted(maps.Keys(systems))
	out.systems = out.systems[:min(len(out.systems), maxPageSystems)]
	jobs, err := sumOf(families[runnerJobs])
	if err == nil && jobs > maxPageJobs {
		err = fmt.Errorf("%g jobs", jobs)
	}
	if err != nil {
		return page{}, scrapeErrorf(ScrapeBadValue, "%s: %s says %s", url, runnerJobs, err.Error())
	}
	out.jobs = int(math.Ceil(jobs))
	if out.concurrent, err = concurrentOf(families); err != nil {
		return page{}, scrapeErrorf(ScrapeBadValue, "%s: %s", url, err.Error())
	}
	// It only tells when there was a job: what it says wrongly is no reason to hear nothing.
	if total, err := sumOf(families[runnerJobsTotal]); err == nil {
		out.total = total
	}
	return out, nil
}

func noteSystems(systems map[string]bool, family *dto.MetricFamily) {
	for _, m := range family.GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == systemLabel && label.GetValue() != "" {
				systems[label.GetValue()] = true
			}
		}
	}
}

// concurrentOf is how many jobs the runner takes at once: concurrent, or less if the
// limits of all its sections together are less. 0 = it doesn't say.
func concurrentOf(families map[string]*dto.MetricFamily) (int, error) {
	concurrent, err := sumOf(families[runnerConcurrent])
	if err != nil {
		return 0, fmt.Errorf("%s says %w", runnerConcurrent, err)
	}
	limits, err := sumOf(families[runnerLimit])
	if err != nil {
		return 0, fmt.Errorf("%s says %w", runnerLimit, err)
	}
	for _, m := range families[runnerLimit].GetMetric() {
		if v, _ := valueOf(m); v == 0 {
			return int(min(concurrent, maxPageJobs)), nil // a section without a limit
		}
	}
	if limits > 0 && (concurrent == 0 || limits < concurrent) {
		concurrent = limits
	}
	return int(min(concurrent, maxPageJobs)), nil
}

// sumOf adds the values of a family, 0 for none.
func sumOf(family *dto.MetricFamily) (float64, error) {
	sum := 0.0
	for _, m := range family.GetMetric() {
		v, ok := valueOf(m)
		if !ok {
			return 0, errors.New("something else than a number")
		}
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return 0, fmt.Errorf("%g", v)
		}
		sum += v
	}
	return sum, nil
}

func valueOf(m *dto.Metric) (float64, bool) {
	switch {
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue(), true
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue(), true
	case m.GetUntyped() != nil:
		return m.GetUntyped().GetValue(), true
	default:
		return 0, false
	}
}
