package server

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-ci/spillway"
)

// MaxFingerprints bounds the fingerprints that are shown one by one [label
// values]; the rest is summed up as "other". A fleet has about as many as it has
// pools, but a registration must not be able to fill a Prometheus.
const MaxFingerprints = 100

// signalCollector shows the signals of one moment together: writing gauges one
// after the other would let a scrape see half of two moments.
type signalCollector struct {
	limit   int
	jobs    *prometheus.Desc
	runners *prometheus.Desc
	ratio   *prometheus.Desc
	shown   atomic.Pointer[[]shownSignal]
}

type shownSignal struct {
	fingerprint   string
	jobs, runners int
}

func newSignalCollector(limit int) *signalCollector {
	about := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("spillway_demand_"+name, help, []string{"fingerprint"}, nil)
	}
	c := &signalCollector{
		limit:   limit,
		jobs:    about("jobs", "Pending jobs that the capability can take; a job counts for each that can."),
		runners: about("runners", "Live machines with the capability."),
		ratio:   about("per_runner_ratio", "Pending jobs divided by machines; 0 without machines."),
	}
	c.set(nil)
	return c
}

// set keeps the limit's worth of fingerprints with the most jobs, in a fixed
// order, and the sum of the others; "other" is always there.
func (c *signalCollector) set(signals []spillway.Signal) {
	signals = slices.Clone(signals)
	slices.SortFunc(signals, func(a, b spillway.Signal) int {
		return cmp.Or(cmp.Compare(b.TotalJobs, a.TotalJobs), slices.Compare(a.Fingerprint[:], b.Fingerprint[:]))
	})
	n := min(len(signals), c.limit)
	shown := make([]shownSignal, 0, n+1)
	other := shownSignal{fingerprint: otherLabel}
	seen := map[string]bool{}
	for i, s := range signals {
		name := s.Fingerprint.Short()
		if i >= n || seen[name] { // two with one short form would be one series twice
			other.jobs += s.TotalJobs
			other.runners += s.TotalRunners
			continue
		}
		seen[name] = true
		shown = append(shown, shownSignal{name, s.TotalJobs, s.TotalRunners})
	}
	shown = append(shown, other)
	c.shown.Store(&shown)
}

// Describe implements prometheus.Collector.
func (c *signalCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.jobs
	ch <- c.runners
	ch <- c.ratio
}

// Collect implements prometheus.Collector.
func (c *signalCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range *c.shown.Load() {
		ratio := 0.0
		if s.runners > 0 {
			ratio = float64(s.jobs) / float64(s.runners)
		}
		for desc, value := range map[*prometheus.Desc]float64{c.jobs: float64(s.jobs), c.runners: float64(s.runners), c.ratio: ratio} {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, s.fingerprint)
		}
	}
}
