package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
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

// DefaultStopGrace is the time between SIGTERM and SIGKILL for an instance: what a
// cloud gives, or a little less, and enough for an agent to end its jobs in order.
const DefaultStopGrace = 10 * time.Second

// ConfigSchema is the JSON Schema of the object that Configure takes. That min ≤
// max, that group names differ, and that the files exist is Configure's to check.
const ConfigSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "local provider",
  "description": "Instances are processes of spillway-agent on this machine.",
  "type": "object",
  "additionalProperties": false,
  "required": ["agent", "router", "groups"],
  "properties": {
    "agent": {"type": "string", "minLength": 1, "description": "path of spillway-agent"},
    "router": {"type": "string", "minLength": 1, "description": "host:port that the agents connect to"},
    "plaintext": {"type": "boolean", "default": false, "description": "no TLS; for a router on a loopback address"},
    "ca_file": {"type": "string", "description": "authorities that may vouch for the router; default the system's"},
    "token_file": {"type": "string", "description": "runner token of the groups that name none of their own"},
    "work_dir": {"type": "string", "description": "directory for the instances; default a private temporary one"},
    "boot_delay": {"$ref": "#/$defs/duration", "default": "0s", "description": "from launch to the start of the process"},
    "stop_grace": {"$ref": "#/$defs/duration", "default": "10s", "description": "between SIGTERM and SIGKILL"},
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
          "capacity": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1, "description": "jobs at once per instance"},
          "token_file": {"type": "string", "description": "runner token of this group's pool"}
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
	agent     string
	router    string
	plaintext bool
	caFile    string
	workDir   string // empty: a private temporary one
	bootDelay time.Duration
	stopGrace time.Duration
	groups    []groupConfig
}

type groupConfig struct {
	name      string
	min, max  int // instances
	capacity  int // jobs
	tokenFile string
}

// parseConfig reads Configure's object. Its error names every mistake.
func parseConfig(data []byte) (config, error) {
	var (
		c                    = config{stopGrace: DefaultStopGrace}
		tokenFile            string
		bootDelay, stopGrace string
		groups               []json.RawMessage
	)
	errs := decodeObject(data, map[string]any{
		"agent": &c.agent, "router": &c.router, "plaintext": &c.plaintext, "ca_file": &c.caFile,
		"token_file": &tokenFile, "work_dir": &c.workDir,
		"boot_delay": &bootDelay, "stop_grace": &stopGrace, "groups": &groups,
	})
	// Processes start in a directory of their own, where a relative path would mean
	// another file.
	absolute(&c.agent, &c.caFile, &c.workDir, &tokenFile)
	errs = append(errs,
		checkAgent(c.agent),
		parseDelay("boot_delay", bootDelay, &c.bootDelay),
		parseDelay("stop_grace", stopGrace, &c.stopGrace))
	if c.router == "" {
		errs = append(errs, errors.New("router: host:port is missing"))
	}
	if c.plaintext && c.caFile != "" {
		errs = append(errs, errors.New("ca_file: plaintext uses none"))
	}
	if len(groups) == 0 || len(groups) > MaxGroups {
		errs = append(errs, fmt.Errorf("groups: %d, use 1 to %d", len(groups), MaxGroups))
	}
	seen := map[string]bool{}
	for i, raw := range groups {
		g, groupErrs := parseGroup(raw, tokenFile)
		if seen[g.name] {
			groupErrs = append(groupErrs, fmt.Errorf("name: %q is another group's", g.name))
		}
		seen[g.name] = true
		for _, err := range groupErrs {
			errs = append(errs, fmt.Errorf("groups[%d]: %w", i, err))
		}
		c.groups = append(c.groups, g)
	}
	if err := errors.Join(errs...); err != nil {
		return config{}, pluginsdk.Errorf(pluginsdk.KindInvalid, "local provider: %w", err)
	}
	return c, nil
}

func parseGroup(data []byte, tokenFile string) (groupConfig, []error) {
	g := groupConfig{capacity: 1, max: -1, tokenFile: tokenFile}
	errs := decodeObject(data, map[string]any{
		"name": &g.name, "min": &g.min, "max": &g.max, "capacity": &g.capacity, "token_file": &g.tokenFile,
	})
	absolute(&g.tokenFile)
	if !groupName.MatchString(g.name) {
		errs = append(errs, fmt.Errorf("name: %q, use 1 to 63 of a-z, A-Z, 0-9, _, . and -, beginning with a letter or digit", g.name))
	}
	if g.min < 0 || g.max < g.min || g.max > MaxInstancesPerGroup {
		errs = append(errs, fmt.Errorf("min %d, max %d: use 0 ≤ min ≤ max ≤ %d", g.min, g.max, MaxInstancesPerGroup))
	}
	if g.capacity < 1 || g.capacity > MaxCapacity {
		errs = append(errs, fmt.Errorf("capacity: %d, use 1 to %d jobs", g.capacity, MaxCapacity))
	}
	if g.tokenFile == "" {
		errs = append(errs, errors.New("token_file: missing here and above"))
	} else if _, err := os.Stat(g.tokenFile); err != nil {
		errs = append(errs, fmt.Errorf("token_file: %w", err))
	}
	return g, errs
}

func absolute(paths ...*string) {
	for _, path := range paths {
		if full, err := filepath.Abs(*path); err == nil && *path != "" {
			*path = full
		}
	}
}

func checkAgent(path string) error {
	if path == "" {
		return errors.New("agent: the path of spillway-agent is missing")
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("agent: %w", err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("agent: %s is no program", filepath.Base(path))
	}
	return nil
}

func parseDelay(name, text string, into *time.Duration) error {
	if text == "" {
		return nil // the default
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > MaxDelay {
		return fmt.Errorf("%s: %q, use a duration from 0s to %s", name, text, MaxDelay)
	}
	*into = d
	return nil
}

// decodeObject reads the fields of a JSON object, and returns every mistake: a
// value of the wrong type, a field that nobody knows.
func decodeObject(data []byte, known map[string]any) []error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return []error{fmt.Errorf("not a JSON object: %w", err)}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		into, ok := known[name]
		if !ok {
			errs = append(errs, fmt.Errorf("%s: there is no such setting", name))
			continue
		}
		if err := json.Unmarshal(fields[name], into); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errs
}
