package config

import "time"

// Who hands out a pool's jobs: Pool.Mode.
const (
	ModeOrchestrate = "orchestrate" // Spillway's own router, from its own queue
	ModeObserve     = "observe"     // GitLab, as it does without us
	ModeRoute       = "route"       // Spillway in front of GitLab: it asks with the runners' own token
)

// GitLab is the GitLab whose fleet is observed or whose jobs are routed.
type GitLab struct {
	URL      string       `yaml:"url"`
	CAFile   string       `yaml:"ca_file,omitempty"`
	APIToken SecretSource `yaml:"api_token,omitempty"` // scope read_api
	Jobs     GitLabJobs   `yaml:"jobs,omitempty"`
	Webhook  *Webhook     `yaml:"webhook,omitempty"`
	Route    *Route       `yaml:"route,omitempty"`
}

// GitLabJobs says whose jobs are listed by the API.
type GitLabJobs struct {
	Scope    string        `yaml:"scope"`              // instance | groups | projects | none
	Groups   []string      `yaml:"groups,omitempty"`   // full paths, for scope groups
	Projects []string      `yaml:"projects,omitempty"` // full paths, for scope projects
	Every    time.Duration `yaml:"every"`
	PerMin   int           `yaml:"requests_per_minute"` // budget of all of our API calls
}

// Webhook turns the receiver of job hooks on.
type Webhook struct {
	Secret SecretSource `yaml:"secret"`
}

// Route makes Spillway the job router of unmodified GitLab Runners.
type Route struct {
	// ServerURL is what discovery tells the runners: grpc, grpcs, ws or wss, a host and
	// a port that they reach.
	ServerURL string `yaml:"server_url"`
	// Front passes everything else on to GitLab, so that runners may have us as their
	// url. Without it only the discovery path is answered.
	Front bool `yaml:"front"`
	// Advertise is where other replicas reach this one's job router, host:port.
	Advertise string `yaml:"advertise,omitempty"`
	// LongPoll is how long a runner's question for a job is held.
	LongPoll time.Duration `yaml:"long_poll"`
	// HoldPerToken bounds the jobs that are kept for a pool at zero, per runner token.
	HoldPerToken int `yaml:"hold_per_token"`
	// RatePerToken is the budget of job requests per runner token [1/s].
	RatePerToken int `yaml:"rate_per_token"`
}

// PoolGitLab is what the pool's runners are to GitLab.
type PoolGitLab struct {
	RunnerID int64        `yaml:"runner_id,omitempty"`
	Token    SecretSource `yaml:"token,omitempty"` // of the runners (glrt-…); route mode needs it
}

// Observe says how the instances of a pool that GitLab serves directly are seen.
type Observe struct {
	Metrics *RunnerMetrics `yaml:"metrics,omitempty"`
	Drain   string         `yaml:"drain"` // sidecar | hook | none
}

// RunnerMetrics is where the runners' own metrics are read.
type RunnerMetrics struct {
	Targets map[string]string `yaml:"targets,omitempty"`      // instance id → host:port; default: each instance's address
	File    string            `yaml:"targets_file,omitempty"` // the same as a JSON object, read again when it changes
	Port    int               `yaml:"port"`
	Path    string            `yaml:"path"`
	TLS     bool              `yaml:"tls,omitempty"`
	CAFile  string            `yaml:"ca_file,omitempty"`
	Every   time.Duration     `yaml:"every"`
}

func (g *GitLab) setDefaults() { g.Jobs.setDefaults() }

func (j *GitLabJobs) setDefaults() {
	j.Scope, j.Every, j.PerMin = "", DefaultJobsEvery, DefaultRequestsPerMinute
}

func (r *Route) setDefaults() {
	r.LongPoll, r.HoldPerToken, r.RatePerToken = DefaultLongPoll, DefaultHoldPerToken, DefaultRatePerToken
}

func (o *Observe) setDefaults() { o.Drain = "none" }

func (m *RunnerMetrics) setDefaults() {
	m.Port, m.Path, m.Every = DefaultMetricsPort, DefaultMetricsPath, DefaultMetricsEvery
}
