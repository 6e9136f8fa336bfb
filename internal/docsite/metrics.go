package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-ci/spillway/server"
)

// metric is one that a control plane shows.
type metric struct {
	name   string
	help   string
	labels []string
}

// descriptor is how a descriptor says what it is; it says it in no other way.
var descriptor = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{(.*?)\}, variableLabels: \{(.*)\}\}$`)

// readMetrics are all metrics that are registered with a registry.
func readMetrics(registry prometheus.Collector) (all []metric, err error) {
	described := make(chan *prometheus.Desc)
	go func() {
		defer close(described)
		registry.Describe(described)
	}()
	for d := range described {
		m := descriptor.FindStringSubmatch(d.String())
		if m == nil || m[1] == `""` {
			err = fmt.Errorf("a metric is described as %s", d)
			continue
		}
		name, _ := strconv.Unquote(m[1])
		help, _ := strconv.Unquote(m[2])
		one := metric{name: name, help: help}
		for label := range strings.SplitSeq(m[4], ",") {
			if label != "" {
				one.labels = append(one.labels, label)
			}
		}
		for _, pair := range constLabel.FindAllStringSubmatch(m[3], -1) {
			one.labels = append(one.labels, pair[1])
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return all, err
}

var constLabel = regexp.MustCompile(`(\w+)="`)

// metrics is the page of all metrics, of those that a control plane registers.
func metrics() ([]byte, error) {
	all, err := readMetrics(server.NewMetrics("dev").Registry())
	if err != nil {
		return nil, err
	}
	subjects := map[string][]metric{}
	for _, m := range all {
		subjects[subject(m.name)] = append(subjects[subject(m.name)], m)
	}
	delete(subjects, usual)
	var b strings.Builder
	b.WriteString("# Metrics\n\nAll that a control plane shows at `/metrics` on `listen.metrics`, besides Prometheus's usual ones of Go (`go_…`) and of the process (`process_…`). " +
		"What ends in `_total` only grows; what ends in `_bool` is 0 or 1; other endings are units. Which of them to watch: [operating.md](operating.md).\n")
	for _, name := range slices.Sorted(maps.Keys(subjects)) {
		fmt.Fprintf(&b, "\n## %s\n", name)
		header(&b, "metric", "labels", "meaning")
		for _, m := range subjects[name] {
			labels := make([]string, len(m.labels))
			for i, label := range m.labels {
				labels[i] = quoted(label)
			}
			row(&b, quoted(m.name), strings.Join(labels, ", "), prose(m.help))
		}
	}
	return []byte(b.String()), nil
}

// The subjects that no name says.
const (
	usual        = "usual"
	controlPlane = "The control plane"
	fleet        = "By the names of others"
)

// subjectOf is what a name begins with: spillway_pool_… is about pools.
var subjectOf = regexp.MustCompile(`^spillway_([a-z]+)_`)

// titles are the subjects' headings.
var titles = map[string]string{
	"access": "Access and audit", "audit": "Access and audit", "admission": "Admission", "cell": "Cells", "coordinator": "Workers that poll",
	"debug": "Sessions with running jobs", "demand": "Demand", "gitlab": "GitLab", "source": "GitLab", "job": "Jobs", "jobs": "Jobs",
	"plugin": "Providers", "provider": "Providers", "pool": "Pools", "decisions": "Pools", "store": "Store", "tls": "Certificates",
}

// subject is what a metric is about, as its name says.
func subject(name string) string {
	m := subjectOf.FindStringSubmatch(name)
	switch {
	case strings.HasPrefix(name, "go_"), strings.HasPrefix(name, "process_"):
		return usual
	case m != nil && titles[m[1]] != "":
		return titles[m[1]]
	case strings.HasPrefix(name, "spillway_"):
		return controlPlane
	default:
		return fleet
	}
}
