package ec2asg

import (
	"context"
	"math"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// countPeriods is how many periods a datapoint may be old: metrics arrive late.
	countPeriods = 3
	// countLeast is the least span of time that is asked for.
	countLeast = 5 * time.Minute
)

// Count implements pluginsdk.Provider: the newest whole datapoint of a CloudWatch
// metric. The datapoint of a period that has not ended would say too little. Without
// one there is nothing to say, which is not 0.
func (p *Provider) Count(ctx context.Context, name string) (pluginsdk.Count, error) {
	var none pluginsdk.Count
	s, err := p.configured.Get()
	if err != nil {
		return none, err
	}
	m, ok := s.config.Metrics[name]
	if !ok {
		return none, pluginsdk.Errorf(pluginsdk.KindInvalid, "no metric %.100q is configured", name)
	}
	now := s.now()
	out, err := send(ctx, s, s.cloudwatch.GetMetricData, m.query(now))
	if err != nil {
		return none, err
	}
	for i := range out.MetricDataResults {
		r := &out.MetricDataResults[i]
		if r.StatusCode == types.StatusCodeForbidden {
			return none, pluginsdk.Errorf(pluginsdk.KindAuth, "metric %s: CloudWatch does not show it to us", name)
		}
		if count, ok := m.newest(r, now); ok {
			return count, m.check(name, count)
		}
	}
	return none, pluginsdk.Errorf(pluginsdk.KindTransient, "metric %s has no datapoint of the last %s", name, m.span())
}

// span is how far back is asked.
func (m *metric) span() time.Duration { return max(countPeriods*m.Period, countLeast) }

// query asks for the metric. The begin is on a period's edge, as CloudWatch wants it.
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_GetMetricData.html
func (m *metric) query(now time.Time) *cloudwatch.GetMetricDataInput {
	dimensions := make([]types.Dimension, 0, len(m.Dimensions))
	for name, value := range m.Dimensions {
		dimensions = append(dimensions, types.Dimension{Name: aws.String(name), Value: aws.String(value)})
	}
	return &cloudwatch.GetMetricDataInput{
		StartTime: aws.Time(now.Add(-m.span()).Truncate(m.Period)), EndTime: aws.Time(now), ScanBy: types.ScanByTimestampDescending,
		MetricDataQueries: []types.MetricDataQuery{{
			Id: aws.String("jobs"),
			MetricStat: &types.MetricStat{
				Metric: &types.Metric{Namespace: aws.String(m.Namespace), MetricName: aws.String(m.Metric), Dimensions: dimensions},
				Period: aws.Int32(int32(m.Period / time.Second)), Stat: aws.String(m.Statistic),
			},
		}},
	}
}

// newest is the newest datapoint whose period has ended; ok is false if there is none.
func (m *metric) newest(r *types.MetricDataResult, now time.Time) (count pluginsdk.Count, ok bool) {
	for i := range min(len(r.Timestamps), len(r.Values)) {
		end := r.Timestamps[i].Add(m.Period)
		if !end.After(now) && (!ok || end.After(count.At)) {
			count, ok = pluginsdk.Count{Jobs: r.Values[i], At: end.UTC()}, true
		}
	}
	return count, ok
}

func (m *metric) check(name string, c pluginsdk.Count) error {
	if c.Jobs < 0 || math.IsNaN(c.Jobs) || math.IsInf(c.Jobs, 0) {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "metric %s is %g, which is no number of jobs", name, c.Jobs)
	}
	return nil
}
