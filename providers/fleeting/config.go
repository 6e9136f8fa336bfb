package fleeting

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spillway-ci/spillway/internal/program"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Limits of the configuration.
const (
	MaxInstances = 5_000 // of max
	MaxEnv       = 64    // variables that the fleeting plugin may see
	MaxDeadline  = 5 * time.Minute
	MinInterval  = 10 * time.Millisecond // between updates
	MaxInterval  = 1 * time.Hour
)

// The defaults. Those of the intervals are a runner's own.
const (
	// DefaultUpdateInterval: less costs calls for a group in which nothing happens;
	// more and an instance that vanished counts for longer.
	DefaultUpdateInterval = time.Minute
	// DefaultChangingInterval is the same while something is expected to happen.
	DefaultChangingInterval = 2 * time.Second
	// DefaultFillTimeout: less gives up a slow cloud's boots, more keeps a pool waiting
	// for what will not come.
	DefaultFillTimeout = 10 * time.Minute
	// DefaultRemoveTimeout is a runner's time between two tries to delete.
	DefaultRemoveTimeout = time.Minute
	// Deadlines of reads are below the host's 30 s, those of writes below its 8 s, so
	// that the answer says which call it was.
	DefaultInitDeadline      = 20 * time.Second
	DefaultUpdateDeadline    = 25 * time.Second
	DefaultWriteDeadline     = 7 * time.Second
	DefaultHeartbeatDeadline = 5 * time.Second
)

// ConfigSchema is the JSON Schema of the object that Configure takes.
const ConfigSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "fleeting provider",
  "description": "One group of instances, by way of a fleeting plugin.",
  "type": "object",
  "additionalProperties": false,
  "required": ["binary", "profile", "groups", "max"],
  "properties": {
    "binary": {"type": "string", "minLength": 1, "description": "absolute path of the fleeting plugin"},
    "sha256": {"type": "string", "pattern": "^[0-9a-fA-F]{64}$", "description": "of the binary; without it any is run"},
    "profile": {"type": "string", "minLength": 1, "description": "path of the wire profile, made by spillwayctl fleeting probe and inspect"},
    "groups": {
      "type": "array", "minItems": 1, "maxItems": 1,
      "description": "the name that pools have for the group: a fleeting plugin is one group",
      "items": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"}
    },
    "plugin_config": {"type": "object", "default": {}, "description": "what plugin_config is in a runner's config.toml"},
    "max": {"type": "integer", "minimum": 0, "maximum": 5000, "description": "instances at most, whatever the plugin allows"},
    "env": {
      "type": "array", "maxItems": 64, "uniqueItems": true,
      "description": "names of variables that the fleeting plugin may see; it sees no others",
      "items": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
    },
    "update_interval": {"$ref": "#/$defs/duration", "default": "1m", "description": "how old a list may be"},
    "changing_interval": {"$ref": "#/$defs/duration", "default": "2s", "description": "how old a list may be while a change is expected"},
    "fill_timeout": {"$ref": "#/$defs/duration", "default": "10m", "description": "from Increase until all is listed"},
    "remove_timeout": {"$ref": "#/$defs/duration", "default": "1m", "description": "from Decrease until the instance is listed as deleting"},
    "heartbeat_interval": {"$ref": "#/$defs/duration", "default": "0s", "description": "between heartbeats of all instances; 0s: none"},
    "deadlines": {
      "type": "object",
      "additionalProperties": false,
      "properties": {
        "init": {"$ref": "#/$defs/duration", "default": "20s"},
        "update": {"$ref": "#/$defs/duration", "default": "25s"},
        "increase": {"$ref": "#/$defs/duration", "default": "7s"},
        "decrease": {"$ref": "#/$defs/duration", "default": "7s"},
        "heartbeat": {"$ref": "#/$defs/duration", "default": "5s", "description": "of all heartbeats of one round"}
      }
    }
  },
  "$defs": {
    "duration": {"type": "string", "pattern": "^([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h))+$"}
  }
}`

var (
	groupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

type config struct {
	Binary            string               `json:"binary" config:"required"`
	SHA256            string               `json:"sha256"`
	Profile           string               `json:"profile" config:"required"`
	Groups            pluginsdk.GroupNames `json:"groups" config:"required"`
	PluginConfig      json.RawMessage      `json:"plugin_config"`
	Max               int                  `json:"max" config:"required"` // instances
	Env               []string             `json:"env"`
	UpdateInterval    time.Duration        `json:"update_interval"`
	ChangingInterval  time.Duration        `json:"changing_interval"`
	FillTimeout       time.Duration        `json:"fill_timeout"`
	RemoveTimeout     time.Duration        `json:"remove_timeout"`
	HeartbeatInterval time.Duration        `json:"heartbeat_interval"` // 0 = none
	Deadlines         deadlines            `json:"deadlines"`
}

// deadlines bound the calls of the fleeting plugin.
type deadlines struct {
	Init      time.Duration `json:"init"`
	Update    time.Duration `json:"update"`
	Increase  time.Duration `json:"increase"`
	Decrease  time.Duration `json:"decrease"`
	Heartbeat time.Duration `json:"heartbeat"`
}

// SetDefaults implements pluginsdk.ConfigDefaulter.
func (c *config) SetDefaults() {
	c.PluginConfig = json.RawMessage("{}")
	c.UpdateInterval, c.ChangingInterval = DefaultUpdateInterval, DefaultChangingInterval
	c.FillTimeout, c.RemoveTimeout = DefaultFillTimeout, DefaultRemoveTimeout
	c.Deadlines.SetDefaults()
}

// SetDefaults implements pluginsdk.ConfigDefaulter.
func (d *deadlines) SetDefaults() {
	*d = deadlines{DefaultInitDeadline, DefaultUpdateDeadline, DefaultWriteDeadline, DefaultWriteDeadline, DefaultHeartbeatDeadline}
}

// Check implements pluginsdk.ConfigChecker.
func (c *config) Check(problems *pluginsdk.Problems) {
	if !filepath.IsAbs(c.Binary) {
		problems.Addf("binary", "use an absolute path")
	}
	if c.SHA256 != "" && !program.HexSum.MatchString(c.SHA256) {
		problems.Addf("sha256", "use 64 hex digits")
	}
	if len(c.Groups) != 1 {
		problems.Addf("groups", "%d, use 1: a fleeting plugin is one group", len(c.Groups))
	} else if !groupName.MatchString(c.Groups[0]) {
		problems.Addf("groups[0]", "use 1 to 63 of a-z, A-Z, 0-9, _, . and -, beginning with a letter or digit")
	}
	if c.PluginConfig[0] != '{' {
		problems.Addf("plugin_config", "must be an object")
	}
	if c.Max < 0 || c.Max > MaxInstances {
		problems.Addf("max", "%d, use 0 to %d", c.Max, MaxInstances)
	}
	c.checkEnv(problems)
	checkDuration(problems, "update_interval", c.UpdateInterval, MinInterval, MaxInterval)
	checkDuration(problems, "changing_interval", c.ChangingInterval, MinInterval, MaxInterval)
	checkDuration(problems, "fill_timeout", c.FillTimeout, MinInterval, MaxInterval)
	checkDuration(problems, "remove_timeout", c.RemoveTimeout, MinInterval, MaxInterval)
	checkDuration(problems, "heartbeat_interval", c.HeartbeatInterval, 0, MaxInterval)
}

func (c *config) checkEnv(problems *pluginsdk.Problems) {
	if len(c.Env) > MaxEnv {
		problems.Addf("env", "%d, use at most %d", len(c.Env), MaxEnv)
	}
	seen := map[string]bool{}
	for i, name := range c.Env {
		path := fmt.Sprintf("env[%d]", i)
		switch {
		case !envName.MatchString(name):
			problems.Addf(path, "it can't name a variable")
		case strings.HasPrefix(name, "PLUGIN_") || strings.HasPrefix(name, pluginsdk.CookieKey):
			problems.Addf(path, "%s belongs to a handshake", name)
		case seen[name]:
			problems.Addf(path, "the name is there twice")
		}
		seen[name] = true
	}
}

// Check implements pluginsdk.ConfigChecker.
func (d *deadlines) Check(problems *pluginsdk.Problems) {
	checkDuration(problems, "init", d.Init, time.Millisecond, MaxDeadline)
	checkDuration(problems, "update", d.Update, time.Millisecond, MaxDeadline)
	checkDuration(problems, "increase", d.Increase, time.Millisecond, MaxDeadline)
	checkDuration(problems, "decrease", d.Decrease, time.Millisecond, MaxDeadline)
	checkDuration(problems, "heartbeat", d.Heartbeat, time.Millisecond, MaxDeadline)
}

func checkDuration(problems *pluginsdk.Problems, path string, d, least, most time.Duration) {
	if d < least || d > most {
		problems.Addf(path, "%s, use %s to %s", d, least, most)
	}
}

// environment is all that the fleeting plugin sees, apart from go-plugin's own.
func (c *config) environment() []string {
	var env []string
	for _, name := range c.Env {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (c *config) rules() rules { return rules{fill: c.FillTimeout, remove: c.RemoveTimeout} }
