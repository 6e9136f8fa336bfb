package gcemig

import (
	"fmt"
	"net"
	"net/url"
	"regexp"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

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
	Project  string               `json:"project" config:"required"`
	Zone     string               `json:"zone"` // or
	Region   string               `json:"region"`
	Endpoint string               `json:"endpoint"`
	Groups   pluginsdk.GroupNames `json:"groups" config:"required"`
}

// Check implements pluginsdk.ConfigChecker.
func (c *config) Check(problems *pluginsdk.Problems) {
	if !projectID.MatchString(c.Project) {
		problems.Addf("project", "%.100q is no project id", c.Project)
	}
	if (c.Zone == "") == (c.Region == "") {
		problems.Addf("", "zone, region: use one of them")
	} else if !resourceName.MatchString(c.Zone + c.Region) {
		problems.Addf("", "zone, region: %.100q is none", c.Zone+c.Region)
	}
	if c.Endpoint != "" {
		checkEndpoint(c.Endpoint, problems)
	}
	for i, name := range c.Groups {
		if !resourceName.MatchString(name) {
			problems.Addf(fmt.Sprintf("groups[%d]", i), "%.100q is no name of a group", name)
		}
	}
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
