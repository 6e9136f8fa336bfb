package ec2asg

// ConfigSchema is the JSON Schema of the object that Configure takes.
const ConfigSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "ec2asg provider",
  "description": "AWS Auto Scaling groups of one account and region.",
  "type": "object",
  "additionalProperties": false,
  "required": ["region", "groups"],
  "examples": [{
    "region": "eu-central-1",
    "groups": ["ci-linux", "ci-linux-spot"],
    "owner": "ci-production",
    "notices_queue": "spillway-notices",
    "hooks": {"drain_timeout": "1h", "heartbeat_timeout": "5m"},
    "metrics": {"waiting": {"namespace": "CI", "metric": "JobsWaiting", "dimensions": {"fleet": "linux"}}},
    "api_rate": {"per_second": 10, "burst": 50}
  }],
  "properties": {
    "region": {"type": "string", "minLength": 1, "description": "such as eu-central-1"},
    "endpoint": {
      "type": "string", "format": "uri", "pattern": "^https?://",
      "description": "another address for all services: a stand-in in tests"
    },
    "endpoints": {
      "type": "object", "additionalProperties": false,
      "description": "another address for one service, before endpoint: an interface VPC endpoint",
      "properties": {
        "autoscaling": {"type": "string", "format": "uri", "pattern": "^https?://"},
        "ec2": {"type": "string", "format": "uri", "pattern": "^https?://"},
        "sqs": {"type": "string", "format": "uri", "pattern": "^https?://"},
        "cloudwatch": {"type": "string", "format": "uri", "pattern": "^https?://"}
      }
    },
    "groups": {
      "type": "array", "minItems": 1, "maxItems": 1000, "uniqueItems": true,
      "description": "names of the Auto Scaling groups; no other is touched",
      "items": {"type": "string", "minLength": 1, "maxLength": 255}
    },
    "owner": {
      "type": "string", "maxLength": 255, "default": "",
      "description": "who this control plane is: a group whose tag spillway-owner says otherwise is read and never written to"
    },
    "notices_queue": {
      "type": "string", "maxLength": 1024, "default": "",
      "description": "URL or name of the SQS queue, of this control plane alone, that EventBridge sends spot interruptions, rebalance recommendations, terminations and state changes to; empty = no notices"
    },
    "hooks": {
      "type": "object", "additionalProperties": false,
      "description": "the groups' lifecycle hooks, which hold an instance until its jobs have ended",
      "properties": {
        "names": {
          "type": "array", "uniqueItems": true, "maxItems": 50, "items": {"type": "string", "minLength": 1, "maxLength": 255},
          "description": "which hooks are Spillway's to keep alive and to complete; empty = all that a group has"
        },
        "drain_timeout": {
          "type": "string", "examples": ["1h"],
          "description": "how long an instance that is held may finish its jobs; longer than the shorter of 100 heartbeats and 48h is more than AWS allows. Empty = as long as AWS allows"
        },
        "heartbeat_timeout": {
          "type": "string", "examples": ["5m"],
          "description": "the heartbeat timeout that the hooks have, from 30s to 2h: drain_timeout is checked against it at the start. Empty = checked only when the groups are looked at"
        }
      }
    },
    "metrics": {
      "type": "object", "maxProperties": 100, "propertyNames": {"minLength": 1, "maxLength": 255},
      "description": "CloudWatch metrics that count jobs, by the name that a pool's demand gives",
      "additionalProperties": {
        "type": "object", "additionalProperties": false, "required": ["namespace", "metric"],
        "properties": {
          "namespace": {"type": "string", "minLength": 1, "maxLength": 255},
          "metric": {"type": "string", "minLength": 1, "maxLength": 255},
          "dimensions": {"type": "object", "maxProperties": 30, "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 1024}},
          "statistic": {"type": "string", "enum": ["Average", "Maximum", "Minimum", "Sum", "SampleCount"], "default": "Maximum"},
          "period": {"type": "string", "default": "1m", "description": "length of a datapoint: 1s, 5s, 10s, 20s, 30s or whole minutes up to 1h"}
        }
      }
    },
    "api_rate": {
      "type": "object", "additionalProperties": false, "required": ["per_second"],
      "description": "how many calls a second this process makes at most, all groups together. Absent = no limit of ours: AWS does not publish its own for Auto Scaling, and says so when it is reached. Give what the account allows: a margin of 5 % is kept below it, burst and rate, so that no call is refused",
      "properties": {
        "per_second": {"type": "number", "exclusiveMinimum": 0, "maximum": 1000},
        "burst": {"type": "integer", "minimum": 1, "maximum": 10000, "default": 10}
      }
    }
  }
}`
