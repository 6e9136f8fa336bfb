package asgstub

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const signed = "AWS4-HMAC-SHA256 Credential=me/20260301/us-east-1/autoscaling/aws4_request, SignedHeaders=host, Signature=0"

// post sends a form as it is.
func post(t *testing.T, c *Cloud, form, auth string) (status int, body string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	if auth != "" {
		r.Header.Set("Authorization", auth)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	out, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return w.Code, string(out)
}

func TestNothingIsIgnored(t *testing.T) {
	t.Parallel()
	c := New(Options{Region: "us-east-1"})
	c.AddGroup(GroupConfig{Name: "ci", Max: 3})
	for _, tc := range []struct {
		form, auth string
		status     int
		code       string
	}{
		{"Action=DescribeAutoScalingGroups&Version=2011-01-01", signed, 200, ""},
		{"Action=DescribeAutoScalingGroups&Version=2011-01-01", "", 403, "MissingAuthenticationToken"},
		{"Action=DescribeAutoScalingGroups&Version=2011-01-01", strings.Replace(signed, "autoscaling", "ec2", 1), 403, "SignatureDoesNotMatch"},
		{"Action=DescribeAutoScalingGroups&Version=2011-01-01", strings.Replace(signed, "us-east-1", "eu-west-1", 1), 403, "SignatureDoesNotMatch"},
		{"Action=DescribeAutoScalingGroups&Version=2011-01-02", signed, 400, "InvalidParameterValue"},
		{"Action=RunInstances&Version=2011-01-01", signed, 400, "InvalidAction"},
		{"Action=DescribeAutoScalingGroups&Version=2011-01-01&Colour=red", signed, 400, "ValidationError"},
		{"Action=SetDesiredCapacity&Version=2011-01-01&AutoScalingGroupName=ci", signed, 400, "ValidationError"},
		{"Action=SetDesiredCapacity&Version=2011-01-01&AutoScalingGroupName=ci&DesiredCapacity=many", signed, 400, "MalformedInput"},
		{"Action=SetDesiredCapacity&Version=2011-01-01&AutoScalingGroupName=ci&DesiredCapacity=1&HonorCooldown=perhaps", signed, 400, "MalformedInput"},
		{"Action=%zz", signed, 400, "MalformedInput"},
		{strings.Repeat("x", maxBody+1), signed, 400, "MalformedInput"},
	} {
		status, body := post(t, c, tc.form, tc.auth)
		require.Equal(t, tc.status, status, "%s", body)
		if tc.code != "" {
			require.Contains(t, body, "<Code>"+tc.code+"</Code>")
		}
	}
	require.Zero(t, c.Live("ci"), "none of the wrong ones did anything")
}

func TestMetricsInCBOR(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	for i, v := range []float64{1, 2, 6} {
		w.SetMetric("Spillway", "Queue", map[string]string{"pool": "a"}, v, epoch.Add(time.Duration(i)*time.Minute))
	}
	api := cloudwatch.New(cloudwatch.Options{
		Region: DefaultRegion, BaseEndpoint: aws.String("http://stub.invalid"), HTTPClient: w.Client(), RetryMaxAttempts: 1,
		Credentials: w.api.Options().Credentials,
	})
	get := func(stat string, period int32) ([]float64, []time.Time, error) {
		out, err := api.GetMetricData(t.Context(), &cloudwatch.GetMetricDataInput{
			StartTime: aws.Time(epoch), EndTime: aws.Time(epoch.Add(time.Hour)),
			MetricDataQueries: []types.MetricDataQuery{{Id: aws.String("q"), MetricStat: &types.MetricStat{
				Stat: &stat, Period: &period,
				Metric: &types.Metric{Namespace: aws.String("Spillway"), MetricName: aws.String("Queue"), Dimensions: []types.Dimension{{Name: aws.String("pool"), Value: aws.String("a")}}},
			}}},
		})
		if err != nil {
			return nil, nil, err
		}
		return out.MetricDataResults[0].Values, out.MetricDataResults[0].Timestamps, nil
	}
	for stat, want := range map[string]float64{"Average": 3, "Sum": 9, "Minimum": 1, "Maximum": 6, "SampleCount": 3} {
		values, times, err := get(stat, 3600)
		require.NoError(t, err)
		require.Equal(t, []float64{want}, values, stat)
		require.True(t, times[0].Equal(epoch))
	}
	values, _, err := get("Sum", 60)
	require.NoError(t, err)
	require.Equal(t, []float64{6, 2, 1}, values, "the newest first")
	_, _, err = get("p99", 60)
	require.Equal(t, "InvalidParameterValue", code(err))
}

func TestCBORRoundTrip(t *testing.T) {
	t.Parallel()
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaf := rapid.OneOf(
			rapid.String().AsAny(), rapid.Bool().AsAny(),
			rapid.Float64().Filter(func(f float64) bool { return !math.IsNaN(f) }).AsAny(),
		)
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf,
			rapid.SliceOfN(value(depth-1), 0, 30).AsAny(), rapid.MapOfN(rapid.String(), value(depth-1), 0, 5).AsAny())
	}
	rapid.Check(t, func(t *rapid.T) {
		v := map[string]any{"v": value(3).Draw(t, "v")}
		got, err := readCBOR(appendCBOR(nil, v))
		require.NoError(t, err)
		require.Equal(t, v, got)
	})
}

func TestCBORNeverPanics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		_, _ = readCBOR(rapid.SliceOf(rapid.Byte()).Draw(t, "data"))
	})
	for _, bad := range []string{"", "\x9f", "\xff", "\x5b\xff\xff\xff\xff\xff\xff\xff\xff", strings.Repeat("\x81", 100), "\xa1\x01\x01", "\x00\x00"} {
		_, err := readCBOR([]byte(bad))
		require.Error(t, err, "%q", bad)
	}
	got, err := readCBOR([]byte("\xbf\x61a\x9f\x01\x20\xff\x61b\xf6\xff"))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": []any{1.0, -1.0}, "b": nil}, got)
}
