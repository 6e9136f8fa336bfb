package config

import (
	"slices"
	"time"

	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/ingress"
)

// Limits of the debug section.
const (
	MinDebugTime     = time.Second
	MaxDebugTime     = 24 * time.Hour
	MaxDebugSessions = 4_096   // each holds two streams and some buffers
	MaxDebugBytes    = 1 << 40 // of one session
)

// Debug bounds the sessions of people with the environments of running jobs.
type Debug struct {
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	MaxDuration time.Duration `yaml:"max_duration"`
	MaxBytes    int64         `yaml:"max_bytes"`    // of one session, both ways together
	MaxSessions int           `yaml:"max_sessions"` // of a replica
	MaxPerJob   int           `yaml:"max_sessions_per_job"`
	// Advertise is where other replicas reach listen.api of this one; empty: where it
	// listens, if that is one address.
	Advertise string `yaml:"advertise,omitempty"`
}

func defaultDebug() Debug {
	return Debug{
		IdleTimeout: ingress.DefaultIdleTimeout, MaxDuration: ingress.DefaultMaxDuration, MaxBytes: ingress.DefaultMaxBytes,
		MaxSessions: ingress.DefaultMaxSessions, MaxPerJob: ingress.DefaultMaxPerJob,
	}
}

// DebugLimits are the limits as the ingress knows them.
func (c *Config) DebugLimits() ingress.Limits {
	d := &c.Debug
	return ingress.Limits{IdleTimeout: d.IdleTimeout, MaxDuration: d.MaxDuration, MaxBytes: d.MaxBytes, MaxSessions: d.MaxSessions, MaxPerJob: d.MaxPerJob}
}

func (v *validator) debug() {
	c := v.config
	d := &c.Debug
	v.between(d.IdleTimeout, MinDebugTime, MaxDebugTime, "debug.idle_timeout")
	v.between(d.MaxDuration, MinDebugTime, MaxDebugTime, "debug.max_duration")
	v.need(d.MaxBytes >= 1 && d.MaxBytes <= MaxDebugBytes, "debug.max_bytes", "%d is out of range; use 1 to %d", d.MaxBytes, int64(MaxDebugBytes))
	v.intBetween(d.MaxSessions, 1, MaxDebugSessions, "debug.max_sessions")
	v.intBetween(d.MaxPerJob, 1, MaxDebugSessions, "debug.max_sessions_per_job")
	if d.Advertise != "" {
		_, ok := reached(d.Advertise)
		v.need(ok, "debug.advertise", "%s: write HOST:PORT, as other replicas reach listen.api of this one", quote(d.Advertise))
	}
	may := func(a Access) bool { return slices.Contains(a.Roles, string(access.Debug)) }
	if (v.at["debug"] != nil || c.Listen.Debug != "") && !slices.ContainsFunc(c.Access, may) {
		at := "debug"
		if v.at[at] == nil {
			at = "listen.debug"
		}
		v.warnf(at, "nobody has the role debug, so every session is refused; give it to an entry of access")
	}
}
