// Package laptop is the example that `controlplane demo` plays: real shell jobs
// for three pools of local processes.
package laptop

import _ "embed"

// Jobs is jobs.jsonl, one job a line.
//
//go:embed jobs.jsonl
var Jobs []byte

// Config is spillway.yaml.
//
//go:embed spillway.yaml
var Config []byte
