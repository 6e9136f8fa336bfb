package config

import "time"

// Config is one valid file. Every default is filled in. It is a value: a reload
// makes a new one, nobody changes this one.
type Config struct {
	Listen      Listen              `yaml:"listen"`
	Store       Store               `yaml:"store"`
	Replica     string              `yaml:"replica,omitempty"` // empty: see ReplicaName
	Tick        time.Duration       `yaml:"tick"`
	Debounce    time.Duration       `yaml:"debounce"`
	Log         Log                 `yaml:"log"`
	Timeouts    Timeouts            `yaml:"timeouts"`
	PluginDir   string              `yaml:"plugin_dir,omitempty"`
	Providers   map[string]Provider `yaml:"providers,omitempty"`
	GitLab      *GitLab             `yaml:"gitlab,omitempty"`
	Access      []Access            `yaml:"access,omitempty"` // empty: whoever can connect, except for debugging
	Audit       Audit               `yaml:"audit,omitempty"`
	Router      Router              `yaml:"router"`
	Admission   Admission           `yaml:"admission,omitempty"`
	Coordinator Coordinator         `yaml:"coordinator"`
	Cells       *Cells              `yaml:"cells,omitempty"`
	Debug       Debug               `yaml:"debug"`
	Pools       []Pool              `yaml:"pools"`

	opts     Options
	tree     tree
	warnings []Problem
}

// Listen says where the control plane listens.
type Listen struct {
	Runners string `yaml:"runners"` // runners' streams (gRPC)
	API     string `yaml:"api"`     // jobs and administration (gRPC)
	Metrics string `yaml:"metrics"` // /metrics, /healthz, /readyz (HTTP)
	// GitLab is webhooks, and in route mode discovery, the WebSocket tunnel and the
	// front proxy (HTTP). Empty without a gitlab section.
	GitLab string `yaml:"gitlab,omitempty"`
	// JobRouter is GitLab Runner's Job Router protocol (gRPC). Empty without route mode.
	JobRouter string `yaml:"job_router,omitempty"`
	// Debug is the way to HTTP servers of running jobs (HTTP). Empty: there is none.
	Debug string `yaml:"debug,omitempty"`
	TLS   TLS    `yaml:"tls,omitempty"`
	// InsecureLoopback lets a listener without TLS exist on a loopback address. No
	// setting lets one exist on any other address.
	InsecureLoopback bool `yaml:"insecure_loopback"`
}

// TLS names the files of one side of a TLS connection; all empty means
// plaintext.
type TLS struct {
	CertFile string `yaml:"cert_file,omitempty"`
	KeyFile  string `yaml:"key_file,omitempty"`
	// CAFile is whom the other side must have its certificate from. On a listener
	// it makes client certificates mandatory.
	CAFile string `yaml:"ca_file,omitempty"`
}

// Enabled reports whether there is a certificate to serve with.
func (t TLS) Enabled() bool { return t.CertFile != "" }

// Store says where replicas meet. Without redis it is embedded in the process.
type Store struct {
	Redis *Redis `yaml:"redis,omitempty"`
}

// Redis is a server, a Sentinel trio (with sentinel) or a Cluster (with cluster).
type Redis struct {
	Addrs        []string  `yaml:"addrs"`
	Username     string    `yaml:"username,omitempty"`
	PasswordFile string    `yaml:"password_file,omitempty"`
	PasswordEnv  string    `yaml:"password_env,omitempty"`
	Database     int       `yaml:"database,omitempty"`
	Cluster      bool      `yaml:"cluster,omitempty"`
	Sentinel     *Sentinel `yaml:"sentinel,omitempty"`
	TLS          *StoreTLS `yaml:"tls,omitempty"`
}

// Password says where the password is; it is not set when there is none.
func (r *Redis) Password() SecretSource {
	return SecretSource{File: r.PasswordFile, Env: r.PasswordEnv}
}

// Sentinel makes addrs the addresses of Sentinels. Their user and password are their own:
// those of Redis are for the servers that they watch.
type Sentinel struct {
	MasterName   string `yaml:"master_name"`
	Username     string `yaml:"username,omitempty"`
	PasswordFile string `yaml:"password_file,omitempty"`
	PasswordEnv  string `yaml:"password_env,omitempty"`
}

// Password says where the Sentinels' password is; it is not set when there is none.
func (s *Sentinel) Password() SecretSource {
	return SecretSource{File: s.PasswordFile, Env: s.PasswordEnv}
}

// StoreTLS turns TLS to the store on, by its presence.
type StoreTLS struct {
	TLS        `yaml:",inline"`
	ServerName string `yaml:"server_name,omitempty"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level"`  // debug | info | warn | error
	Format string `yaml:"format"` // text | json
}

// Timeouts are those of jobs and machines, in every pool.
type Timeouts struct {
	Pending        time.Duration `yaml:"pending"`
	Unmatched      time.Duration `yaml:"unmatched"`
	Assign         time.Duration `yaml:"assign"`
	Silent         time.Duration `yaml:"silent"`
	HeartbeatEvery time.Duration `yaml:"heartbeat_every"`
}

// Provider is one plugin with one configuration.
type Provider struct {
	// Plugin is a path, or a bare name of a file in plugin_dir.
	Plugin string `yaml:"plugin"`
	// SHA256 pins the binary, in hex; empty starts whatever is there.
	SHA256 string `yaml:"sha256,omitempty"`
	// Config is handed to the plugin as it is, as JSON.
	Config JSON `yaml:"config,omitempty"`
	// Env names the only variables of ours that the plugin sees.
	Env []string `yaml:"env,omitempty"`
}

// Pool is one pool as the file has it.
type Pool struct {
	Name                string        `yaml:"name"`
	Mode                string        `yaml:"mode"` // orchestrate | observe | route: who hands the jobs out
	GitLab              *PoolGitLab   `yaml:"gitlab,omitempty"`
	Observe             *Observe      `yaml:"observe,omitempty"`
	Capability          Capability    `yaml:"capability"`
	Priority            int           `yaml:"priority"`
	CapacityPerInstance int           `yaml:"capacity_per_instance"` // jobs
	CostPerJob          float64       `yaml:"cost_per_job,omitempty"`
	SpillAfter          time.Duration `yaml:"spill_after"` // default: the router's
	Provider            string        `yaml:"provider,omitempty"`
	Group               string        `yaml:"group"` // default: the name
	RunnerToken         SecretSource  `yaml:"runner_token,omitempty"`
	Count               *Count        `yaml:"count,omitempty"`
	Policy              Policy        `yaml:"policy"`
}

// Count is a number that says how many jobs the pool has and not which: a metric of
// a cloud, read by its plugin, or a query of a Prometheus server. It keeps instances,
// and launches some only where nothing tells which jobs wait.
type Count struct {
	Provider   string        `yaml:"provider,omitempty"`   // whose plugin reads it; default: the pool's
	Metric     string        `yaml:"metric,omitempty"`     // its name in that provider's config
	Prometheus *Prometheus   `yaml:"prometheus,omitempty"` // instead of provider and metric
	Means      string        `yaml:"means"`                // jobs | instances
	Every      time.Duration `yaml:"every"`
}

// Prometheus is a query whose answer is one number.
type Prometheus struct {
	URL    string       `yaml:"url"`
	Query  string       `yaml:"query"`
	CAFile string       `yaml:"ca_file,omitempty"`
	Token  SecretSource `yaml:"token,omitempty"` // bearer
}

// Capability is what the pool's runners take.
type Capability struct {
	Tags        []string  `yaml:"tags,omitempty"`
	RunUntagged bool      `yaml:"run_untagged,omitempty"`
	Protected   bool      `yaml:"protected,omitempty"`
	Type        string    `yaml:"type"`
	Groups      []int64   `yaml:"groups,omitempty"`
	Projects    []int64   `yaml:"projects,omitempty"`
	Resources   Resources `yaml:"resources,omitempty"`
}

// Resources is what one job may use on the pool's runners.
type Resources struct {
	MilliCPU  int64    `yaml:"milli_cpu,omitempty"`
	MemoryMiB int64    `yaml:"memory_mib,omitempty"`
	Features  []string `yaml:"features,omitempty"`
}

// Policy is how the pool scales. Counts are instances unless said otherwise.
type Policy struct {
	Need            string        `yaml:"need"` // queue | step
	Min             int           `yaml:"min"`
	Max             int           `yaml:"max"`
	IdleCount       int           `yaml:"idle_count"`
	IdleFactor      float64       `yaml:"idle_factor"`
	IdleTime        time.Duration `yaml:"idle_time"`
	MaxUses         int           `yaml:"max_uses"` // jobs; 0 = no limit; without effect in mode observe
	Tolerance       float64       `yaml:"tolerance"`
	ScaleOut        ScaleOut      `yaml:"scale_out"`
	ScaleIn         ScaleIn       `yaml:"scale_in"`
	Step            int           `yaml:"step"`
	StepWait        time.Duration `yaml:"step_wait"`
	RegisterTimeout time.Duration `yaml:"register_timeout"`
	SilentTimeout   time.Duration `yaml:"silent_timeout"`
	MaxAge          time.Duration `yaml:"max_age"`       // 0 = no limit
	DrainTimeout    time.Duration `yaml:"drain_timeout"` // 0 = as long as the cloud waits
	Paused          bool          `yaml:"paused"`
}

// ScaleOut is what damps growth; 0 = not damped.
type ScaleOut struct {
	Stabilization time.Duration `yaml:"stabilization"`
	Cooldown      time.Duration `yaml:"cooldown"`
	StepLimit     int           `yaml:"step_limit"`
}

// ScaleIn is what damps shrinking; 0 = not damped.
type ScaleIn struct {
	Stabilization      time.Duration `yaml:"stabilization"`
	Cooldown           time.Duration `yaml:"cooldown"`
	StepLimit          int           `yaml:"step_limit"`
	MaxRemovalsPerTick int           `yaml:"max_removals_per_tick"`
	PercentBudget      int           `yaml:"percent_budget"`
}

// Warnings are what is allowed and probably not meant, in the order of the file.
func (c *Config) Warnings() []Problem { return c.warnings }
