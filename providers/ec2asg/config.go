package ec2asg

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Limits of the configuration. Those of AWS are in the API reference of the object.
const (
	MaxGroupNameBytes = 255   // of AWS
	MaxHookNames      = 50    // hooks of one group, of AWS
	MaxMetrics        = 100   // ours: each is a call now and then
	MaxDimensions     = 30    // of one metric, of AWS
	MaxCallsPerSecond = 1000  // ours: more is no limit
	MaxBurst          = 10000 // ours
	maxTextBytes      = 1024
)

// The bounds of a lifecycle hook:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutLifecycleHook.html
// and API_LifecycleHook.html (GlobalTimeout).
const (
	minHeartbeat      = 30 * time.Second
	maxHeartbeat      = 7200 * time.Second
	maxHookHeartbeats = 100
	maxHookWait       = 48 * time.Hour
)

type config struct {
	Region       string               `json:"region" config:"required"`
	Endpoint     string               `json:"endpoint"`
	Endpoints    endpoints            `json:"endpoints"`
	Groups       pluginsdk.GroupNames `json:"groups" config:"required"`
	Owner        string               `json:"owner"`
	NoticesQueue string               `json:"notices_queue"`
	Hooks        hookConfig           `json:"hooks"`
	Metrics      map[string]metric    `json:"metrics"`
	APIRate      *apiRate             `json:"api_rate"`
}

// Check implements pluginsdk.ConfigChecker.
func (c *config) Check(problems *pluginsdk.Problems) {
	checkEndpoint(problems, "endpoint", c.Endpoint)
	for i, name := range c.Groups {
		checkText(problems, fmt.Sprintf("groups[%d]", i), name, 1, MaxGroupNameBytes)
	}
	checkText(problems, "owner", c.Owner, 0, MaxGroupNameBytes)
	checkText(problems, "notices_queue", c.NoticesQueue, 0, maxTextBytes)
	if len(c.Metrics) > MaxMetrics {
		problems.Addf("metrics", "%d, use at most %d", len(c.Metrics), MaxMetrics)
	}
	if _, unnamed := c.Metrics[""]; unnamed {
		problems.Addf("metrics", "a metric without a name")
	}
}

// endpoints are addresses of single services.
type endpoints struct {
	AutoScaling string `json:"autoscaling"`
	EC2         string `json:"ec2"`
	SQS         string `json:"sqs"`
	CloudWatch  string `json:"cloudwatch"`
}

// Check implements pluginsdk.ConfigChecker.
func (e *endpoints) Check(problems *pluginsdk.Problems) {
	checkEndpoint(problems, "autoscaling", e.AutoScaling)
	checkEndpoint(problems, "ec2", e.EC2)
	checkEndpoint(problems, "sqs", e.SQS)
	checkEndpoint(problems, "cloudwatch", e.CloudWatch)
}

type hookConfig struct {
	Names            []string      `json:"names"`
	DrainTimeout     time.Duration `json:"drain_timeout"`
	HeartbeatTimeout time.Duration `json:"heartbeat_timeout"`
}

// Check implements pluginsdk.ConfigChecker.
func (h *hookConfig) Check(problems *pluginsdk.Problems) {
	if len(h.Names) > MaxHookNames {
		problems.Addf("names", "%d, use at most %d", len(h.Names), MaxHookNames)
	}
	for i, name := range h.Names {
		checkText(problems, fmt.Sprintf("names[%d]", i), name, 1, MaxGroupNameBytes)
		if slices.Index(h.Names, name) < i {
			problems.Addf(fmt.Sprintf("names[%d]", i), "the name is there twice")
		}
	}
	if h.DrainTimeout < 0 {
		problems.Addf("drain_timeout", "must not be negative")
	}
	if h.HeartbeatTimeout == 0 {
		return
	}
	if h.HeartbeatTimeout < minHeartbeat || h.HeartbeatTimeout > maxHeartbeat {
		problems.Addf("heartbeat_timeout", "%s, AWS allows %s to %s", h.HeartbeatTimeout, minHeartbeat, maxHeartbeat)
		return
	}
	if limit := longestWait(h.HeartbeatTimeout); h.DrainTimeout > limit {
		problems.Addf("drain_timeout", "%s, but AWS ends the wait after %s with a heartbeat of %s (%d heartbeats, at most %s): use a longer heartbeat timeout, or less",
			h.DrainTimeout, limit, h.HeartbeatTimeout, maxHookHeartbeats, maxHookWait)
	}
}

// longestWait is how long an instance can wait for a hook, whatever is done.
func longestWait(heartbeat time.Duration) time.Duration {
	return min(maxHookHeartbeats*heartbeat, maxHookWait)
}

// mine reports whether a hook is ours to complete.
func (h *hookConfig) mine(name string) bool {
	return len(h.Names) == 0 || slices.Contains(h.Names, name)
}

// metric is a CloudWatch metric that counts jobs.
type metric struct {
	Namespace  string            `json:"namespace" config:"required"`
	Metric     string            `json:"metric" config:"required"`
	Dimensions map[string]string `json:"dimensions"`
	Statistic  string            `json:"statistic"`
	Period     time.Duration     `json:"period"`
}

// SetDefaults implements pluginsdk.ConfigDefaulter. The maximum is right for a gauge,
// whichever part of the fleet published it; the minute is the shortest period that
// every metric has.
func (m *metric) SetDefaults() { m.Statistic, m.Period = "Maximum", time.Minute }

var statistics = []string{"Average", "Maximum", "Minimum", "Sum", "SampleCount"}

// Check implements pluginsdk.ConfigChecker.
func (m *metric) Check(problems *pluginsdk.Problems) {
	checkText(problems, "namespace", m.Namespace, 1, MaxGroupNameBytes)
	checkText(problems, "metric", m.Metric, 1, MaxGroupNameBytes)
	if !slices.Contains(statistics, m.Statistic) {
		problems.Addf("statistic", "use one of %v", statistics)
	}
	// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_MetricStat.html
	short := slices.Contains([]time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second}, m.Period)
	if !short && (m.Period < time.Minute || m.Period > time.Hour || m.Period%time.Minute != 0) {
		problems.Addf("period", "%s, use 1s, 5s, 10s, 20s, 30s or whole minutes up to 1h", m.Period)
	}
	if len(m.Dimensions) > MaxDimensions {
		problems.Addf("dimensions", "%d, use at most %d", len(m.Dimensions), MaxDimensions)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Dimensions)) {
		if value := m.Dimensions[name]; name == "" || value == "" || len(value) > maxTextBytes {
			problems.Addf("dimensions", "a dimension needs a name, and a value of 1 to %d characters", maxTextBytes)
		}
	}
}

type apiRate struct {
	PerSecond float64 `json:"per_second" config:"required"`
	Burst     int     `json:"burst"`
}

// SetDefaults implements pluginsdk.ConfigDefaulter.
func (r *apiRate) SetDefaults() { r.Burst = 10 }

// Check implements pluginsdk.ConfigChecker.
func (r *apiRate) Check(problems *pluginsdk.Problems) {
	if r.PerSecond <= 0 || r.PerSecond > MaxCallsPerSecond {
		problems.Addf("per_second", "use more than 0, at most %d", MaxCallsPerSecond)
	}
	if r.Burst < 1 || r.Burst > MaxBurst {
		problems.Addf("burst", "use 1 to %d", MaxBurst)
	}
}

// keptPercent is how much of api_rate is used. Calls that leave at an even pace arrive
// at an uneven one, and one that is refused costs more than all that are left out: it
// halves the pace.
const keptPercent = 95

// kept is the pace that is kept.
func (r *apiRate) kept() (perSecond float64, burst int) {
	return r.PerSecond * keptPercent / 100, max(1, r.Burst*keptPercent/100)
}

func checkEndpoint(problems *pluginsdk.Problems, path, endpoint string) {
	if endpoint != "" && !isHTTP(endpoint) {
		problems.Addf(path, "use http://host or https://host")
	}
}

func checkText(problems *pluginsdk.Problems, path, text string, least, most int) {
	if len(text) < least || len(text) > most {
		problems.Addf(path, "use %d to %d characters", least, most)
	}
}

func isHTTP(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}
