package ec2asg

import (
	"fmt"
	"net/url"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// MaxGroupNameBytes bounds the name of a group: AWS's own limit.
const MaxGroupNameBytes = 255

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
	Region   string               `json:"region" config:"required"`
	Endpoint string               `json:"endpoint"`
	Groups   pluginsdk.GroupNames `json:"groups" config:"required"`
}

// Check implements pluginsdk.ConfigChecker.
func (c *config) Check(problems *pluginsdk.Problems) {
	if c.Endpoint != "" && !isHTTP(c.Endpoint) {
		problems.Addf("endpoint", "use http://host or https://host")
	}
	for i, name := range c.Groups {
		if name == "" || len(name) > MaxGroupNameBytes {
			problems.Addf(fmt.Sprintf("groups[%d]", i), "use 1 to %d characters", MaxGroupNameBytes)
		}
	}
}

func isHTTP(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}
