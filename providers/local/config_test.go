package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

func commands(t *testing.T, change map[string]any) map[string]any {
	t.Helper()
	group := map[string]any{"name": "runners", "max": 5, "command": []any{"sh", "-c", "exec sleep 1000"}}
	for k, v := range change {
		group[k] = v
	}
	return map[string]any{"groups": []any{group}, "work_dir": t.TempDir()}
}

// A command needs nothing of the agent's; a sidecar does.
func TestValidCommands(t *testing.T) {
	agent, _ := stub(t, sleeps)
	all := commands(t, map[string]any{"command": []any{"/bin/echo", "{instance}-{metrics_port}-{work_dir}-{group}", "{{}}", strings.Repeat("x", local.MaxPartBytes)}, "stop_signal": "SIGQUIT", "min": 0})
	long := make([]any, local.MaxCommandParts)
	for i := range long {
		long[i] = "true"
	}
	beside := settings(t, agent)
	beside["groups"] = []any{
		map[string]any{"name": "runners", "max": 5, "command": []any{"true", "{metrics_port}"}, "sidecar": true},
		map[string]any{"name": "agents", "max": 5},
		map[string]any{"name": "alone", "max": 5, "command": []any{"true"}, "sidecar": false, "stop_signal": "SIGTERM"},
	}
	for name, config := range map[string]map[string]any{
		"plain": commands(t, nil), "all": all, "many parts": commands(t, map[string]any{"command": long}), "all kinds of groups": beside,
	} {
		t.Run(name, func(t *testing.T) {
			providertest.RunConfigs(t, fresh, providertest.ConfigCase{Config: string(object(t, config))})
		})
	}
}

func TestInvalidCommands(t *testing.T) {
	tooMany := make([]any, local.MaxCommandParts+1)
	for i := range tooMany {
		tooMany[i] = "true"
	}
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("t"), 0o600))
	for name, c := range map[string]struct {
		change map[string]any
		says   string
		beyond bool // the schema's knowledge
	}{
		"empty":                    {map[string]any{"command": []any{}}, "command", false},
		"too many parts":           {map[string]any{"command": tooMany}, "command", false},
		"a part too long":          {map[string]any{"command": []any{"true", strings.Repeat("x", local.MaxPartBytes+1)}}, "command[1]", false},
		"a part with a zero":       {map[string]any{"command": []any{"true", "\x00"}}, "command[1]", true},
		"a string":                 {map[string]any{"command": "true"}, "command", false},
		"no such program":          {map[string]any{"command": []any{"/nowhere/runner"}}, "command[0]", true},
		"a program by placeholder": {map[string]any{"command": []any{"{work_dir}/run"}}, "name the program itself", true},
		"an unknown placeholder":   {map[string]any{"command": []any{"true", "{port}"}}, "no placeholder {port}", true},
		"a lone brace":             {map[string]any{"command": []any{"true", "a}"}}, "belongs to no placeholder", true},
		"an open brace":            {map[string]any{"command": []any{"true", "{instance"}}, "belongs to no placeholder", true},
		"the agent's capacity":     {map[string]any{"capacity": 2}, "capacity", false},
		"the agent's token":        {map[string]any{"token_file": file}, "token_file", false},
		"another signal":           {map[string]any{"stop_signal": "SIGKILL"}, "stop_signal", false},
		"a sidecar without agent":  {map[string]any{"sidecar": true, "command": []any{"true", "{metrics_port}"}}, "agent", false},
		"a sidecar that is deaf":   {map[string]any{"sidecar": true}, "{metrics_port}", true},
		"a signal beside":          {map[string]any{"sidecar": true, "command": []any{"true", "{metrics_port}"}, "stop_signal": "SIGQUIT"}, "the sidecar stops the command", false},
	} {
		t.Run(name, func(t *testing.T) {
			config := commands(t, c.change)
			if sidecar := c.change["sidecar"] != nil && c.says != "agent"; sidecar {
				agent, _ := stub(t, sleeps)
				config["agent"], config["router"], config["token_file"] = agent, "127.0.0.1:1", file
			}
			providertest.RunConfigs(t, fresh, providertest.ConfigCase{
				Config: string(object(t, config)), Mistakes: []string{c.says}, BeyondSchema: c.beyond,
			})
		})
	}
}

// What goes with a command means nothing without one.
func TestTheAgentTakesNoCommandsSettings(t *testing.T) {
	agent, _ := stub(t, sleeps)
	for name, beyond := range map[string]bool{"stop_signal": false, "sidecar": true} {
		config := settings(t, agent)
		group := config["groups"].([]any)[0].(map[string]any)
		group[name] = map[string]any{"stop_signal": "SIGTERM", "sidecar": true}[name]
		providertest.RunConfigs(t, fresh, providertest.ConfigCase{Config: string(object(t, config)), Mistakes: []string{name}, BeyondSchema: beyond})
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	providertest.RunConfigs(t, fresh, providertest.ConfigCase{
		Config:   `{"colour": 1, "boot_delay": "x", "groups": [{"name": "", "size": 3}]}`,
		Mistakes: []string{"colour", "boot_delay", "agent", "router", "groups[0].name", "groups[0].size", "groups[0].token_file"},
	})
}
