package gcemig

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// ConfigSchema is the JSON Schema of the object that Configure takes.
const ConfigSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "gcemig provider",
  "description": "Managed instance groups of one Google Cloud project, zonal and regional.",
  "type": "object",
  "additionalProperties": false,
  "required": ["project", "groups"],
  "not": {"required": ["zone", "region"]},
  "anyOf": [
    {"required": ["zone"]},
    {"required": ["region"]},
    {"properties": {"groups": {"items": {"pattern": "^(zones|regions)/"}}}}
  ],
  "properties": {
    "project": {"type": "string", "pattern": "^[a-z][a-z0-9:.-]{0,99}$", "description": "id of the project"},
    "zone": {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,62}$", "description": "where the groups are that are named without a place, such as europe-west1-b; or"},
    "region": {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,62}$", "description": "where they are if they are regional, such as europe-west1"},
    "endpoint": {"type": "string", "pattern": "^https?://", "description": "another address of the Compute API; on a loopback address no credentials are used"},
    "owner": {"type": "string", "pattern": "^[a-z0-9_-]{1,63}$", "description": "value of the label spillway-owner; a group whose instances are labelled with another is not written to"},
    "api_rate": {"type": "number", "minimum": 0.1, "maximum": 1000, "default": 10, "description": "calls of the Compute API per second, all groups together"},
    "groups": {
      "type": "array", "minItems": 1, "maxItems": 1000, "uniqueItems": true,
      "description": "managed instance groups, as NAME, zones/ZONE/NAME or regions/REGION/NAME; no other is touched",
      "items": {"type": "string", "pattern": "^((zones|regions)/[a-z][a-z0-9-]{0,62}/)?[a-z][a-z0-9-]{0,62}$"}
    }
  }
}`

// The calls of the Compute API per second that a provider makes unless it is told
// otherwise, and how many at once after a pause. Google's default is 1500 reads and
// as many writes a minute in a project (compute/docs/api-rate-limits), which is 25 a
// second; others need some of them, and fewer than 10 makes a tick of many pools slow.
const (
	defaultRate = 10.0
	burstTime   = 2 // seconds' worth of calls
	minRate     = 0.1
	maxRate     = 1_000.0
)

// These become parts of a URL's path.
var (
	projectID    = regexp.MustCompile(`^[a-z][a-z0-9:.-]{0,99}$`)
	resourceName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	labelValue   = regexp.MustCompile(`^[a-z0-9_-]{1,63}$`)
)

type config struct {
	Project  string               `json:"project" config:"required"`
	Zone     string               `json:"zone"` // or
	Region   string               `json:"region"`
	Endpoint string               `json:"endpoint"`
	Owner    string               `json:"owner"`
	APIRate  float64              `json:"api_rate"` // calls per second
	Groups   pluginsdk.GroupNames `json:"groups" config:"required"`
}

// SetDefaults implements pluginsdk.ConfigDefaulter.
func (c *config) SetDefaults() { c.APIRate = defaultRate }

// Check implements pluginsdk.ConfigChecker.
func (c *config) Check(problems *pluginsdk.Problems) {
	if !projectID.MatchString(c.Project) {
		problems.Addf("project", "%.100q is no project id", c.Project)
	}
	if c.Zone != "" && c.Region != "" {
		problems.Addf("", "zone, region: use one of them")
	} else if c.Zone+c.Region != "" && !resourceName.MatchString(c.Zone+c.Region) {
		problems.Addf("", "zone, region: %.100q is none", c.Zone+c.Region)
	}
	if c.Endpoint != "" {
		checkEndpoint(c.Endpoint, problems)
	}
	if c.Owner != "" && !labelValue.MatchString(c.Owner) {
		problems.Addf("owner", "use at most 63 lowercase letters, digits, _ and -: it is the value of a label")
	}
	if !(c.APIRate >= minRate && c.APIRate <= maxRate) {
		problems.Addf("api_rate", "use %v to %v calls a second", minRate, maxRate)
	}
	c.checkGroups(problems)
}

func (c *config) checkGroups(problems *pluginsdk.Problems) {
	seen := make(map[address]int, len(c.Groups))
	for i, name := range c.Groups {
		path := fmt.Sprintf("groups[%d]", i)
		a, ok := c.resolve(name)
		switch first, again := seen[a]; {
		case !ok:
			problems.Addf(path, "%.100q is no group: use NAME, zones/ZONE/NAME or regions/REGION/NAME", name)
		case a.zone+a.region == "":
			problems.Addf(path, "zone, region: use one of them to say where it is, or name it as zones/ZONE/NAME or regions/REGION/NAME")
		case again && c.Groups[first] != name: // otherwise it is said already
			problems.Addf(path, "is the same group as groups[%d]", first)
		default:
			seen[a] = i
		}
	}
}

// address says which group is meant.
type address struct {
	zone, region string // one of them
	name         string
}

// resolve reads the name of a group as the configuration and the contract have it.
func (c *config) resolve(name string) (a address, ok bool) {
	a = address{c.Zone, c.Region, name}
	if parts := strings.Split(name, "/"); len(parts) == 3 && parts[0] == "zones" {
		a = address{zone: parts[1], name: parts[2]}
	} else if len(parts) == 3 && parts[0] == "regions" {
		a = address{region: parts[1], name: parts[2]}
	}
	place := a.zone + a.region
	return a, resourceName.MatchString(a.name) && (place == "" || resourceName.MatchString(place) || a.name == name)
}

func checkEndpoint(endpoint string, problems *pluginsdk.Problems) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		problems.Addf("endpoint", "use https://host")
	case u.Scheme == "http" && !onLoopback(endpoint):
		problems.Addf("endpoint", "http would show the credentials on the way; it is for loopback addresses only")
	}
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
