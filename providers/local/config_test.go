package local_test

import (
	"os"
	"path/filepath"
	"testing"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/local"
)

func fresh() pluginsdk.Provider { return local.New() }

func TestLongestDelays(t *testing.T) {
	agent, _ := stub(t, sleeps)
	c := settings(t, agent)
	c["boot_delay"], c["stop_grace"] = "1h", "1m30s"
	providertest.RunConfigs(t, fresh, providertest.ConfigCase{Config: string(object(t, c))})
}

// Each mistake is refused by Configure, and by the schema if a schema can know.
func TestInvalidConfigs(t *testing.T) {
	agent, _ := stub(t, sleeps)
	group := func(change map[string]any) []any {
		g := map[string]any{"name": "linux", "max": 5}
		for k, v := range change {
			g[k] = v
		}
		return []any{g}
	}
	for name, c := range map[string]struct {
		change map[string]any
		says   string
		beyond bool // the schema's knowledge
	}{
		"unknown key":          {map[string]any{"colour": 1}, "colour", false},
		"unknown key in group": {map[string]any{"groups": group(map[string]any{"colour": 1})}, "colour", false},
		"no groups":            {map[string]any{"groups": []any{}}, "groups", false},
		"group without name":   {map[string]any{"groups": group(map[string]any{"name": ""})}, "name", false},
		"name with slash":      {map[string]any{"groups": group(map[string]any{"name": "a/b"})}, "name", false},
		"two of one name":      {map[string]any{"groups": append(group(nil), group(nil)...)}, "another group's", true},
		"max too large":        {map[string]any{"groups": group(map[string]any{"max": 501})}, "max", false},
		"min over max":         {map[string]any{"groups": group(map[string]any{"min": 6})}, "min", true},
		"negative min":         {map[string]any{"groups": group(map[string]any{"min": -1})}, "min", false},
		"no capacity":          {map[string]any{"groups": group(map[string]any{"capacity": 0})}, "capacity", false},
		"bad delay":            {map[string]any{"boot_delay": "soon"}, "boot_delay", false},
		"negative delay":       {map[string]any{"boot_delay": "-1s"}, "boot_delay", false},
		"delay too long":       {map[string]any{"stop_grace": "61m"}, "stop_grace", true},
		"number for a delay":   {map[string]any{"boot_delay": 5}, "boot_delay", false},
		"no router":            {map[string]any{"router": ""}, "router", false},
		"no agent":             {map[string]any{"agent": ""}, "agent", false},
		"agent is absent":      {map[string]any{"agent": filepath.Join(t.TempDir(), "absent")}, "absent", true},
		"agent is no program":  {map[string]any{"agent": os.DevNull}, "no program", true},
		"token is absent":      {map[string]any{"token_file": filepath.Join(t.TempDir(), "absent")}, "token_file", true},
		"no token":             {map[string]any{"token_file": ""}, "token_file", true},
		"plaintext and CA":     {map[string]any{"ca_file": "x"}, "ca_file", true},
	} {
		t.Run(name, func(t *testing.T) {
			config := settings(t, agent)
			for k, v := range c.change {
				config[k] = v
			}
			providertest.RunConfigs(t, fresh, providertest.ConfigCase{
				Config: string(object(t, config)), Mistakes: []string{c.says}, BeyondSchema: c.beyond,
			})
		})
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	providertest.RunConfigs(t, fresh, providertest.ConfigCase{
		Config:   `{"colour": 1, "boot_delay": "x", "groups": [{"name": "", "size": 3}]}`,
		Mistakes: []string{"colour", "boot_delay", "agent", "router", "groups[0].name", "groups[0].size", "groups[0].token_file"},
	})
}
