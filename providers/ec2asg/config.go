package ec2asg

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Limits of the configuration.
const (
	MaxGroups         = 1_000 // as many as one Status may ask for
	MaxGroupNameBytes = 255   // AWS's own limit
)

// ConfigSchema is the JSON Schema of the object that Configure takes.
const ConfigSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "ec2asg provider",
  "description": "AWS Auto Scaling groups of one account and region.",
  "type": "object",
  "additionalProperties": false,
  "required": ["region", "groups"],
  "properties": {
    "region": {"type": "string", "minLength": 1, "description": "such as eu-central-1"},
    "endpoint": {"type": "string", "format": "uri", "pattern": "^https?://", "description": "another address of the Auto Scaling API: a VPC endpoint, or a stand-in in tests"},
    "groups": {
      "type": "array", "minItems": 1, "maxItems": 1000, "uniqueItems": true,
      "description": "names of the Auto Scaling groups; no other is touched",
      "items": {"type": "string", "minLength": 1, "maxLength": 255}
    }
  }
}`

type config struct {
	region   string
	endpoint string
	groups   map[string]bool
}

// parseConfig reads Configure's object. Its error names every mistake.
func parseConfig(data []byte) (config, error) {
	var c config
	var groups []string
	errs := decodeObject(data, map[string]any{"region": &c.region, "endpoint": &c.endpoint, "groups": &groups})
	if c.region == "" {
		errs = append(errs, errors.New("region: missing"))
	}
	if c.endpoint != "" {
		errs = append(errs, checkEndpoint(c.endpoint))
	}
	if len(groups) == 0 || len(groups) > MaxGroups {
		errs = append(errs, fmt.Errorf("groups: %d, use 1 to %d", len(groups), MaxGroups))
	}
	c.groups = make(map[string]bool, len(groups))
	for i, name := range groups {
		if name == "" || len(name) > MaxGroupNameBytes {
			errs = append(errs, fmt.Errorf("groups[%d]: use 1 to %d characters", i, MaxGroupNameBytes))
		}
		if c.groups[name] {
			errs = append(errs, fmt.Errorf("groups[%d]: %q is there twice", i, name))
		}
		c.groups[name] = true
	}
	if err := errors.Join(errs...); err != nil {
		return config{}, pluginsdk.Errorf(pluginsdk.KindInvalid, "ec2asg provider: %w", err)
	}
	return c, nil
}

func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return errors.New("endpoint: use http://host or https://host")
	}
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
