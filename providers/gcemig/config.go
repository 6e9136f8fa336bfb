package gcemig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// MaxGroups bounds the groups of the configuration: as many as one Status may ask
// for.
const MaxGroups = 1_000

// ConfigSchema is the JSON Schema of the object that Configure takes.
const ConfigSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "gcemig provider",
  "description": "Managed instance groups of one Google Cloud project in one zone or region.",
  "type": "object",
  "additionalProperties": false,
  "required": ["project", "groups"],
  "oneOf": [{"required": ["zone"]}, {"required": ["region"]}],
  "properties": {
    "project": {"type": "string", "pattern": "^[a-z][a-z0-9:.-]{0,99}$", "description": "id of the project"},
    "zone": {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,62}$", "description": "of zonal groups, such as europe-west1-b"},
    "region": {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,62}$", "description": "of regional groups, such as europe-west1"},
    "endpoint": {"type": "string", "pattern": "^https?://", "description": "another address of the Compute API; on a loopback address no credentials are used"},
    "groups": {
      "type": "array", "minItems": 1, "maxItems": 1000, "uniqueItems": true,
      "description": "names of the managed instance groups; no other is touched",
      "items": {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,62}$"}
    }
  }
}`

// These become parts of a URL's path.
var (
	projectID    = regexp.MustCompile(`^[a-z][a-z0-9:.-]{0,99}$`)
	resourceName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
)

type config struct {
	project  string
	zone     string // or
	region   string
	endpoint string
	groups   map[string]bool
}

// parseConfig reads Configure's object. Its error names every mistake.
func parseConfig(data []byte) (config, error) {
	var c config
	var groups []string
	errs := decodeObject(data, map[string]any{
		"project": &c.project, "zone": &c.zone, "region": &c.region, "endpoint": &c.endpoint, "groups": &groups,
	})
	if !projectID.MatchString(c.project) {
		errs = append(errs, fmt.Errorf("project: %.100q is no project id", c.project))
	}
	if (c.zone == "") == (c.region == "") {
		errs = append(errs, errors.New("zone, region: use one of them"))
	} else if !resourceName.MatchString(c.zone + c.region) {
		errs = append(errs, fmt.Errorf("zone, region: %.100q is none", c.zone+c.region))
	}
	if c.endpoint != "" {
		errs = append(errs, checkEndpoint(c.endpoint))
	}
	if len(groups) == 0 || len(groups) > MaxGroups {
		errs = append(errs, fmt.Errorf("groups: %d, use 1 to %d", len(groups), MaxGroups))
	}
	c.groups = make(map[string]bool, len(groups))
	for i, name := range groups {
		if !resourceName.MatchString(name) {
			errs = append(errs, fmt.Errorf("groups[%d]: %.100q is no name of a group", i, name))
		}
		if c.groups[name] {
			errs = append(errs, fmt.Errorf("groups[%d]: %q is there twice", i, name))
		}
		c.groups[name] = true
	}
	if err := errors.Join(errs...); err != nil {
		return config{}, pluginsdk.Errorf(pluginsdk.KindInvalid, "gcemig provider: %w", err)
	}
	return c, nil
}

func checkEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return errors.New("endpoint: use https://host")
	}
	if u.Scheme == "http" && !onLoopback(endpoint) {
		return errors.New("endpoint: http would show the credentials on the way; it is for loopback addresses only")
	}
	return nil
}

// onLoopback reports whether the endpoint is a stand-in on this machine.
func onLoopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
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
