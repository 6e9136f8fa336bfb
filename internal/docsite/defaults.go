package main

import (
	"fmt"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/config"
)

// least is a configuration with every section and nothing in it that can be left out:
// what else is in it once it was read are defaults. What must be there is called
// "least", so that no example has the same.
const least = `
store: {redis: {addrs: ["least:1"]}}
providers: {least: {plugin: /least}}
gitlab:
  url: https://least.example
  api_token: {env: LEAST}
  webhook: {secret: {env: LEAST}}
  route: {server_url: "grpcs://least.example"}
access: [{name: least, token: {env: LEAST}, roles: [read]}]
admission: {controllers: [{name: least}]}
cells: {name: least, peers: [{name: least-peer, address: "127.0.0.1:1", token: {env: LEAST}}]}
pools:
  - {name: least, capability: {tags: [least]}, provider: least, runner_token: {env: LEAST}, count: {metric: least}}
  - name: least-observed
    mode: observe
    gitlab: {runner_id: 1}
    observe: {metrics: {}, drain: none}
    provider: least
    count: {prometheus: {url: "https://least.example", query: least}}
`

// defaults are the defaults of all settings that have one, by path.
func defaults() (map[string]string, error) {
	c, err := config.Parse("least", []byte(least))
	if err != nil {
		return nil, fmt.Errorf("the configuration that has only defaults: %w", err)
	}
	var doc yaml.Node
	if err := doc.Encode(c); err != nil {
		return nil, err
	}
	found := map[string]string{}
	collect(&doc, "", found)
	return found, nil
}

// collect notes the values below a path. Of several elements the first one that has a
// value counts.
func collect(n *yaml.Node, path string, into map[string]string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			below := n.Content[i].Value
			if path != "" {
				below = path + "." + below
			}
			collect(n.Content[i+1], below, into)
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			collect(item, path+"[]", into)
		}
	case yaml.ScalarNode:
		if _, known := into[path]; !known {
			into[path] = n.Value
		}
	default:
	}
}

// sameValue reports whether a value of the example is a default. One that is left out
// when a configuration is written has its zero value.
func sameValue(example, standard string) bool {
	if standard == "" {
		switch example {
		case "", "0", "0s", "false", "[]", "{}":
			return true
		default:
			return false
		}
	}
	if example == standard {
		return true
	}
	a, err := time.ParseDuration(example)
	if err == nil {
		b, err := time.ParseDuration(standard)
		return err == nil && a == b
	}
	x, err := strconv.ParseFloat(example, 64)
	if err != nil {
		return false
	}
	y, err := strconv.ParseFloat(standard, 64)
	return err == nil && x == y
}
