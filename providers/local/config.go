package local

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Limits of the configuration. Instances are processes of one machine.
const (
	MaxGroups            = 100
	MaxInstancesPerGroup = 500
	MaxCapacity          = 1_000         // jobs per instance, as a router takes it
	MaxDelay             = 1 * time.Hour // of boot_delay and stop_grace
)

// DefaultStopGrace is the time between SIGTERM (or stop_signal) and SIGKILL for an instance: what a
// cloud gives, or a little less, and enough for an agent to end its jobs in order.
const DefaultStopGrace = 10 * time.Second

// ConfigSchema is the JSON Schema of the object that Configure takes. That min ≤
// max, that group names differ, and that the files exist is Configure's to check.
const ConfigSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "local provider",
  "description": "Instances are processes on this machine: of spillway-agent, or of any command.",
  "type": "object",
  "additionalProperties": false,
  "required": ["groups"],
  "if": {"properties": {"groups": {"contains": {"anyOf": [
    {"not": {"required": ["command"]}},
    {"required": ["sidecar"], "properties": {"sidecar": {"const": true}}}
  ]}}}},
  "then": {"required": ["agent", "router"]},
  "properties": {
    "agent": {"type": "string", "minLength": 1, "description": "path of spillway-agent, for groups without a command or with a sidecar"},
    "router": {"type": "string", "minLength": 1, "description": "host:port that the agents connect to"},
    "plaintext": {"type": "boolean", "default": false, "description": "no TLS; for a router on a loopback address"},
    "ca_file": {"type": "string", "description": "authorities that may vouch for the router; default the system's"},
    "token_file": {"type": "string", "description": "runner token of the groups that name none of their own"},
    "work_dir": {"type": "string", "description": "directory for the instances; default a private temporary one"},
    "boot_delay": {"$ref": "#/$defs/duration", "default": "0s", "description": "from launch to the start of the process"},
    "stop_grace": {"$ref": "#/$defs/duration", "default": "10s", "description": "between SIGTERM, or stop_signal, and SIGKILL"},
    "groups": {
      "type": "array", "minItems": 1, "maxItems": 100,
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "max"],
        "properties": {
          "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"},
          "min": {"type": "integer", "minimum": 0, "default": 0},
          "max": {"type": "integer", "minimum": 0, "maximum": 500},
          "capacity": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1, "description": "jobs at once per instance of the agent"},
          "token_file": {"type": "string", "description": "runner token of this group's pool"},
          "command": {
            "type": "array", "minItems": 1, "maxItems": 100, "items": {"type": "string", "maxLength": 4096},
            "description": "what an instance runs instead of the agent; {instance}, {metrics_port}, {work_dir} and {group} are filled in, and {{ and }} are braces"
          },
          "stop_signal": {"enum": ["SIGTERM", "SIGQUIT"], "default": "SIGTERM", "description": "what tells the command to end"},
          "sidecar": {"type": "boolean", "default": false, "description": "spillway-agent --sidecar starts the command and speaks for it"}
        },
        "dependentRequired": {"stop_signal": ["command"]},
        "dependentSchemas": {
          "command": {
            "properties": {"capacity": false},
            "if": {"required": ["sidecar"], "properties": {"sidecar": {"const": true}}},
            "then": {"properties": {"stop_signal": false}},
            "else": {"properties": {"token_file": false}}
          }
        }
      }
    }
  },
  "$defs": {
    "duration": {"type": "string", "pattern": "^([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h))+$"}
  }
}`

var groupName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// config is what Configure was given, with defaults.
type config struct {
	Agent     string        `json:"agent"`
	Router    string        `json:"router"`
	Plaintext bool          `json:"plaintext"`
	CAFile    string        `json:"ca_file"`
	TokenFile string        `json:"token_file"` // of the groups that name none
	WorkDir   string        `json:"work_dir"`   // empty: a private temporary one
	BootDelay time.Duration `json:"boot_delay"`
	StopGrace time.Duration `json:"stop_grace"`
	Groups    []groupConfig `json:"groups" config:"required"`
}

type groupConfig struct {
	Name      string `json:"name" config:"required"`
	Min       int    `json:"min"` // instances
	Max       int    `json:"max" config:"required"`
	Capacity  *int   `json:"capacity"` // jobs; nil = 1, or what the command likes
	TokenFile string `json:"token_file"`

	Command    []string `json:"command"` // nil = the agent
	StopSignal string   `json:"stop_signal"`
	Sidecar    bool     `json:"sidecar"`
}

// capacity is what an agent takes at once [jobs].
func (g *groupConfig) capacity() int {
	if g.Capacity == nil {
		return 1
	}
	return *g.Capacity
}

// usesAgent reports whether the group's instances have an agent.
func (g *groupConfig) usesAgent() bool { return g.Command == nil || g.Sidecar }

// parseConfig reads Configure's object. Its error names every mistake.
func parseConfig(data []byte) (config, error) {
	var c config
	if err := pluginsdk.DecodeConfig(data, &c); err != nil {
		return config{}, err
	}
	// Processes start in a directory of their own, where a relative path would mean
	// another file.
	absolute(&c.Agent, &c.CAFile, &c.WorkDir, &c.TokenFile)
	for i := range c.Groups {
		g := &c.Groups[i]
		absolute(&g.TokenFile)
		g.TokenFile = cmp.Or(g.TokenFile, c.TokenFile)
		if len(g.Command) > 0 {
			g.Command[0] = program(g.Command[0])
		}
	}
	return c, nil
}

func absolute(paths ...*string) {
	for _, path := range paths {
		if full, err := filepath.Abs(*path); err == nil && *path != "" {
			*path = full
		}
	}
}

// SetDefaults implements pluginsdk.ConfigDefaulter.
func (c *config) SetDefaults() { c.StopGrace = DefaultStopGrace }

// program is where a program is that was found when the configuration was checked.
func program(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return name // gone since: an instance says so
	}
	absolute(&path)
	return path
}

// Check implements pluginsdk.ConfigChecker.
func (c *config) Check(problems *pluginsdk.Problems) {
	if slices.ContainsFunc(c.Groups, func(g groupConfig) bool { return g.usesAgent() }) || len(c.Groups) == 0 {
		checkAgent(c.Agent, problems)
		if c.Router == "" {
			problems.Addf("router", "missing: the agents connect to it")
		}
	}
	checkDelay("boot_delay", c.BootDelay, problems)
	checkDelay("stop_grace", c.StopGrace, problems)
	if c.Plaintext && c.CAFile != "" {
		problems.Addf("ca_file", "plaintext uses none")
	}
	if len(c.Groups) > MaxGroups {
		problems.Addf("groups", "%d, use 1 to %d", len(c.Groups), MaxGroups)
		return
	}
	seen := map[string]bool{}
	for i, g := range c.Groups {
		if seen[g.Name] {
			problems.Addf(fmt.Sprintf("groups[%d].name", i), "%q is another group's", g.Name)
		}
		seen[g.Name] = true
		if g.usesAgent() {
			checkToken(fmt.Sprintf("groups[%d].token_file", i), cmp.Or(g.TokenFile, c.TokenFile), problems)
		}
	}
}

// Check implements pluginsdk.ConfigChecker.
func (g *groupConfig) Check(problems *pluginsdk.Problems) {
	if !groupName.MatchString(g.Name) {
		problems.Addf("name", "%q, use 1 to 63 of a-z, A-Z, 0-9, _, . and -, beginning with a letter or digit", g.Name)
	}
	if g.Min < 0 || g.Max < g.Min || g.Max > MaxInstancesPerGroup {
		problems.Addf("max", "min is %d, max is %d: use 0 ≤ min ≤ max ≤ %d", g.Min, g.Max, MaxInstancesPerGroup)
	}
	if g.Capacity != nil && (*g.Capacity < 1 || *g.Capacity > MaxCapacity) {
		problems.Addf("capacity", "%d, use 1 to %d jobs", *g.Capacity, MaxCapacity)
	}
	g.checkCommand(problems)
}

func checkAgent(path string, problems *pluginsdk.Problems) {
	info, err := os.Stat(path)
	switch {
	case path == "":
		problems.Addf("agent", "missing: groups without a command, or with a sidecar, need it")
	case err != nil:
		problems.Addf("agent", "%s", err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		problems.Addf("agent", "%s is no program", filepath.Base(path))
	}
}

func checkToken(path, file string, problems *pluginsdk.Problems) {
	if file == "" {
		problems.Addf(path, "missing here and above")
	} else if _, err := os.Stat(file); err != nil {
		problems.Addf(path, "%s", err)
	}
}

func checkDelay(path string, d time.Duration, problems *pluginsdk.Problems) {
	if d < 0 || d > MaxDelay {
		problems.Addf(path, "%s, use a duration from 0s to %s", d, MaxDelay)
	}
}
