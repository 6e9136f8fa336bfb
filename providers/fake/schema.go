package fake

// ConfigSchema is the JSON Schema of the object that Configure takes. Bounds that
// depend on each other (min ≤ initial ≤ max) are Configure's to check.
const ConfigSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "fake provider",
  "description": "A cloud in memory, for tests, benchmarks and demonstrations.",
  "type": "object",
  "additionalProperties": false,
  "required": ["groups"],
  "properties": {
    "seed": {"type": "integer", "minimum": 0, "description": "equal seeds draw equal boot times and faults"},
    "groups": {
      "type": "object", "minProperties": 1, "maxProperties": 5000,
      "additionalProperties": {"$ref": "#/$defs/group"}
    },
    "faults": {"type": "array", "items": {"$ref": "#/$defs/fault"}}
  },
  "$defs": {
    "duration": {"type": "string", "pattern": "^([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h))+$"},
    "count": {"type": "integer", "minimum": 0, "maximum": 20000},
    "ratio": {"type": "number", "minimum": 0, "maximum": 1},
    "kind": {"enum": ["capacity", "quota", "throttled", "auth", "invalid", "transient"]},
    "group": {
      "type": "object", "additionalProperties": false,
      "properties": {
        "boot": {
          "description": "from launch until the instance runs",
          "oneOf": [
            {"$ref": "#/$defs/duration"},
            {"type": "object", "additionalProperties": false, "required": ["p50"],
             "properties": {"p50": {"$ref": "#/$defs/duration"}, "p95": {"$ref": "#/$defs/duration"}}}
          ]
        },
        "min": {"$ref": "#/$defs/count"},
        "max": {"$ref": "#/$defs/count"},
        "initial": {"$ref": "#/$defs/count"},
        "never_register": {
          "type": "object", "additionalProperties": false,
          "properties": {
            "every": {"type": "integer", "minimum": 0},
            "ids": {"type": "array", "items": {"type": "string"}},
            "all": {"type": "boolean"}
          }
        },
        "errors": {
          "type": "array", "maxItems": 1000,
          "items": {
            "type": "object", "additionalProperties": false, "required": ["to", "kind"],
            "properties": {
              "from": {"$ref": "#/$defs/duration"}, "to": {"$ref": "#/$defs/duration"},
              "kind": {"$ref": "#/$defs/kind"}, "ratio": {"$ref": "#/$defs/ratio"},
              "delivery": {"enum": ["call", "activity"]},
              "retry_after": {"$ref": "#/$defs/duration", "description": "when the cloud says that it may be asked again"}
            }
          }
        },
        "partial": {"$ref": "#/$defs/ratio"},
        "late_fill": {"$ref": "#/$defs/duration"},
        "visible_after": {"$ref": "#/$defs/duration"},
        "victim": {"enum": ["busy_first", "oldest", "random"]},
        "protected": {"type": "boolean"},
        "auto_replace": {"type": "boolean"},
        "price": {"type": "number", "minimum": 0, "description": "per instance-hour"},
        "launch_hook": {"$ref": "#/$defs/duration", "description": "a launched instance is held until complete_hook, at most so long"},
        "termination_hook": {"$ref": "#/$defs/duration", "description": "an instance that is ended is held until complete_hook, at most so long"},
        "halts": {
          "type": "array", "maxItems": 1000, "description": "when nothing is launched or removed, and why",
          "items": {
            "type": "object", "additionalProperties": false, "required": ["to"],
            "properties": {
              "from": {"$ref": "#/$defs/duration"}, "to": {"$ref": "#/$defs/duration"},
              "launch": {"type": "string"}, "removal": {"type": "string"}
            }
          }
        },
        "kept": {"type": "array", "items": {"type": "string"}, "description": "instances that somebody has marked as not to be touched"}
      }
    },
    "fault": {
      "type": "object", "additionalProperties": false, "required": ["on", "do"],
      "properties": {
        "on": {"enum": ["status", "list", "set_desired", "remove", "withdraw", "protect", "complete_hook", "report_unhealthy"]},
        "do": {"enum": ["hang", "exit", "error"]},
        "kind": {"$ref": "#/$defs/kind"},
        "after": {"type": "integer", "minimum": 0, "description": "calls that pass first"},
        "times": {"type": "integer", "minimum": 0, "description": "calls that it meets; 0 = every one"}
      },
      "if": {"properties": {"do": {"const": "error"}}, "required": ["do"]},
      "then": {"required": ["kind"]},
      "else": {"not": {"required": ["kind"]}}
    }
  }
}`
