package asgstub

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxDatapoints bounds the points that one metric remembers, the newest, and those
// of one answer:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_GetMetricData.html
const (
	maxDatapoints = 100_800
	maxQueries    = 500
)

// metric is a metric's points, by time.
type metric struct {
	points []datapoint
}

type datapoint struct {
	at    time.Time
	value float64
}

// SetMetric puts one point of a CloudWatch metric.
func (c *Cloud) SetMetric(namespace, name string, dimensions map[string]string, value float64, at time.Time) {
	c.do(func() {
		key := metricKey(namespace, name, dimensions)
		m := c.mu.metrics[key]
		if m == nil {
			m = &metric{}
			c.mu.metrics[key] = m
		}
		i, _ := slices.BinarySearchFunc(m.points, at, func(p datapoint, t time.Time) int { return p.at.Compare(t) })
		m.points = slices.Insert(m.points, i, datapoint{at, value})
		m.points = slices.Delete(m.points, 0, max(0, len(m.points)-maxDatapoints))
	})
}

func metricKey(namespace, name string, dimensions map[string]string) string {
	parts := []string{namespace, name}
	for _, k := range slices.Sorted(maps.Keys(dimensions)) {
		parts = append(parts, k, dimensions[k])
	}
	return strings.Join(parts, "\x00")
}

// series is one query of a call.
type series struct {
	id, label string
	key       string
	period    time.Duration
	stat      string
	hidden    bool
}

// getMetricData knows metrics and no expressions:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_GetMetricData.html
func getMetricData(x *exchange) error {
	f := x.fields()
	queries := member(f, "MetricDataQueries", []any(nil))
	from, to := f.time("StartTime"), f.time("EndTime")
	order := f.text("ScanBy")
	limit := f.int("MaxDatapoints", maxDatapoints, 1, maxDatapoints)
	switch {
	case len(queries) == 0 || len(queries) > maxQueries:
		f.fail("The parameter MetricDataQueries must have 1 to %d entries.", maxQueries)
	case !from.Before(to):
		f.fail("The parameter StartTime must be less than the parameter EndTime.")
	case order != "" && order != "TimestampDescending" && order != "TimestampAscending":
		f.fail("The parameter ScanBy is not known.")
	}
	if err := f.done(); err != nil {
		return err
	}
	results := []any{}
	for i, v := range queries {
		s, err := readSeries(v, fmt.Sprintf("MetricDataQueries.%d.", i+1))
		if err != nil {
			return err
		}
		if s.hidden {
			continue
		}
		points := x.c.mu.metrics[s.key].aggregate(s, from, to)
		if order != "TimestampAscending" {
			slices.Reverse(points)
		}
		status := "Complete"
		if len(points) > limit {
			points, status = points[:limit], "PartialData"
		}
		results = append(results, s.result(points, status))
	}
	x.out = map[string]any{"MetricDataResults": results, "Messages": []any{}}
	return nil
}

func readSeries(v any, at string) (s series, err error) {
	f := fieldsOf(v, at)
	s.id, s.label = f.need("Id"), f.text("Label")
	s.hidden = !member(f, "ReturnData", true)
	stat := fieldsOf(member(f, "MetricStat", map[string]any{}), at+"MetricStat.")
	if err := f.done(); err != nil {
		return s, err
	}
	s.stat = stat.need("Stat")
	stat.text("Unit") // points of the stand-in have none
	s.period = time.Duration(stat.int("Period", 0, 1, 86_400)) * time.Second
	m := fieldsOf(member(stat, "Metric", map[string]any{}), at+"MetricStat.Metric.")
	if err := stat.done(); err != nil {
		return s, err
	}
	namespace, name := m.need("Namespace"), m.need("MetricName")
	dimensions := make(map[string]string)
	for _, d := range member(m, "Dimensions", []any(nil)) {
		df := fieldsOf(d, at+"MetricStat.Metric.Dimensions.")
		dimensions[df.need("Name")] = df.need("Value")
		if err := df.done(); err != nil {
			return s, err
		}
	}
	if s.label == "" {
		s.label = name
	}
	if !slices.Contains([]string{"Average", "Sum", "Minimum", "Maximum", "SampleCount"}, s.stat) {
		m.fail("The stand-in does not know the statistic %s.", s.stat)
	}
	s.key = metricKey(namespace, name, dimensions)
	return s, m.done()
}

// aggregate makes one point of each period that has some; from is included, to is not.
func (m *metric) aggregate(s series, from, to time.Time) (out []datapoint) {
	if m == nil {
		return nil
	}
	var values []float64
	var at time.Time
	flush := func() {
		if len(values) > 0 {
			out = append(out, datapoint{at, statistic(s.stat, values)})
		}
	}
	for _, p := range m.points {
		start := p.at.UTC().Truncate(s.period)
		if p.at.Before(from) || !p.at.Before(to) {
			continue
		}
		if !start.Equal(at) {
			flush()
			values, at = nil, start
		}
		values = append(values, p.value)
	}
	flush()
	return out
}

func statistic(name string, values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	switch name {
	case "Sum":
		return total
	case "Minimum":
		return slices.Min(values)
	case "Maximum":
		return slices.Max(values)
	case "SampleCount":
		return float64(len(values))
	default:
		return total / float64(len(values))
	}
}

func (s series) result(points []datapoint, status string) map[string]any {
	times, values := make([]any, len(points)), make([]any, len(points))
	for i, p := range points {
		times[i], values[i] = p.at, p.value
	}
	return map[string]any{"Id": s.id, "Label": s.label, "Timestamps": times, "Values": values, "StatusCode": status}
}
