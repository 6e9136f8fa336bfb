package config

import _ "embed"

// Example is a complete file: every setting with its meaning. Where it does not
// say otherwise the value shown is the default. Tests hold it to both.
//
//go:embed example.yaml
var Example string
