package config_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/config"
)

// The example is the reference: it must be valid, have every setting, and show
// the default wherever a line does not say that it is an example.
func TestExampleIsValidAndComplete(t *testing.T) {
	c, err := config.Parse("example.yaml", []byte(config.Example))
	require.NoError(t, err)
	require.Empty(t, c.Warnings())

	var doc yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(config.Example), &doc))
	shown := map[string]bool{}
	paths(doc.Content[0], "", shown)
	settings := map[string]bool{}
	schema(reflect.TypeFor[config.Config](), "", settings)
	for path := range settings {
		env, secret := strings.CutSuffix(path, ".file")
		password, file := strings.CutSuffix(path, "_file")
		if (file && shown[password+"_env"]) || (secret && shown[env+".env"]) {
			continue // the alternative is shown, and this one in its comment
		}
		if of, target := strings.CutSuffix(path, ".targets.NAME"); target && shown[of+".targets"] {
			continue
		}
		require.True(t, shown[path], "example.yaml does not show %s", path)
	}
	require.Contains(t, config.Example, "password_file:")
	require.Contains(t, config.Example, "{file: PATH}")
}

func TestExampleShowsTheDefaults(t *testing.T) {
	example, err := config.Parse("example.yaml", []byte(config.Example))
	require.NoError(t, err)
	defaults, err := config.Parse("f", []byte(minimal))
	require.NoError(t, err)

	require.Equal(t, config.DefaultGitLab, example.Listen.GitLab)
	require.Equal(t, config.DefaultJobRouter, example.Listen.JobRouter)
	example.Listen.TLS, example.Listen.GitLab, example.Listen.JobRouter, example.Listen.Debug = config.TLS{}, "", "", ""
	require.Equal(t, defaults.Listen, example.Listen)
	require.Equal(t, defaults.Tick, example.Tick)
	require.Equal(t, defaults.Debounce, example.Debounce)
	require.Equal(t, defaults.Log, example.Log)
	require.Equal(t, defaults.Coordinator, example.Coordinator)
	require.Equal(t, defaults.Timeouts, example.Timeouts)
	require.Equal(t, defaults.Pools[0].Policy, example.Pools[0].Policy)

	pool, want := example.SpillwayPools()[0], defaults.SpillwayPools()[0]
	require.Equal(t, want.Priority, pool.Priority)
	require.Equal(t, want.CapacityPerInstance, pool.CapacityPerInstance)
	require.Equal(t, want.CostPerJob, pool.CostPerJob)
	capability, plain := pool.Capability.Normalize(), want.Capability.Normalize()
	capability.Tags = plain.Tags
	require.Equal(t, plain, capability)
}

func paths(n *yaml.Node, path string, into map[string]bool) {
	into[path] = true
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if path == "providers" {
				key = "NAME"
			}
			paths(n.Content[i+1], strings.TrimPrefix(path+"."+key, "."), into)
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			paths(item, path+"[]", into)
		}
	default:
	}
}

func schema(t reflect.Type, path string, into map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer:
		schema(t.Elem(), path, into)
	case reflect.Map:
		schema(t.Elem(), path+".NAME", into)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			schema(t.Elem(), path+"[]", into)
		}
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if name == "" || !f.IsExported() {
				continue
			}
			at := strings.TrimPrefix(path+"."+name, ".")
			into[at] = true
			schema(f.Type, at, into)
		}
	default:
	}
}
