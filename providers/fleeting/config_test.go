package fleeting_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/fleeting"
)

func TestConfigs(t *testing.T) {
	s := newStand(t, "")
	t.Setenv("FLEETINGSTAND", "")
	good := string(s.config())
	with := func(old, new string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, new, 1)
	}
	providertest.RunConfigs(
		t, func() pluginsdk.Provider { return fleeting.New() },
		providertest.ConfigCase{Config: good},
		providertest.ConfigCase{Config: `{}`, Mistakes: []string{"binary: missing", "profile: missing", "groups: missing", "max: missing"}},
		providertest.ConfigCase{Config: with(`["oaks"]`, `["oaks","elms"]`), Mistakes: []string{"groups: 2, use 1"}},
		providertest.ConfigCase{Config: with(`["oaks"]`, `["-"]`), Mistakes: []string{"groups[0]"}},
		providertest.ConfigCase{Config: with(`"max":6`, `"max":5001`), Mistakes: []string{"max: 5001"}},
		providertest.ConfigCase{Config: with(`"max":6`, `"max":-1`), Mistakes: []string{"max: -1"}},
		providertest.ConfigCase{Config: with(`"plugin_config":{`, `"plugin_config":[],"other":{`), Mistakes: []string{"plugin_config"}},
		providertest.ConfigCase{Config: with(`"max":6`, `"max":6,"sha256":"x"`), Mistakes: []string{"sha256"}},
		providertest.ConfigCase{Config: with(`"max":6`, `"max":6,"deadlines":{"update":"soon","other":1}`), Mistakes: []string{"deadlines.update", "deadlines.other"}},
		providertest.ConfigCase{Config: with(`["FLEETINGSTAND"]`, `["A=B"]`), Mistakes: []string{"env[0]"}},
		providertest.ConfigCase{Config: with(`["FLEETINGSTAND"]`, `["PLUGIN_X"]`), Mistakes: []string{"env[0]"}, BeyondSchema: true},
		providertest.ConfigCase{Config: with(`"update_interval":"20ms"`, `"update_interval":"1ms"`), Mistakes: []string{"update_interval: 1ms"}, BeyondSchema: true},
		providertest.ConfigCase{Config: with(`"max":6`, `"max":6,"deadlines":{"update":"6m"}`), Mistakes: []string{"deadlines.update: 6m0s"}, BeyondSchema: true},
		providertest.ConfigCase{Config: with(built.stand, "/no/such/binary"), Mistakes: []string{"does not exist"}, BeyondSchema: true},
		providertest.ConfigCase{Config: with(built.stand, "stand"), Mistakes: []string{"binary: use an absolute path"}, BeyondSchema: true},
		providertest.ConfigCase{Config: with(`"max":6`, fmt.Sprintf(`"max":6,"sha256":"%064d"`, 1)), Mistakes: []string{"is pinned"}, BeyondSchema: true},
		providertest.ConfigCase{Config: with(s.conf["profile"].(string), filepath.Join(t.TempDir(), "none")), Mistakes: []string{"profile:"}, BeyondSchema: true},
	)
	require.Empty(t, children(t, os.Getpid()), "nothing is left running")
}

// A profile that says too little, or another plugin than the one that runs, is
// refused before anything is asked for.
func TestProfileMustFit(t *testing.T) {
	s := newStand(t, "")
	good, err := os.ReadFile(s.conf["profile"].(string))
	require.NoError(t, err)
	for name, c := range map[string]struct{ old, new, want string }{
		"no field of that name":  {"Init.config: terms", "Init.config: conditions", `has no field "conditions"`},
		"of another kind":        {"Init.config: terms", "Init.config: loudness", "is uint32, not string or bytes"},
		"nothing bound":          {"    Increase.count: more\n", "", "nothing is bound to Increase.count"},
		"no such method":         {"Decrease: Decrease", "Decrease: Fell", "has no method Fell"},
		"no such service":        {"orchard.v1.Orchard", "orchard.v2.Orchard", "there is no service orchard.v2.Orchard"},
		"no such enum value":     {"PHASE_TIMEOUT: timeout", "PHASE_LATE: timeout", "has no value PHASE_LATE"},
		"nothing means running":  {"PHASE_RUNNING: running", "PHASE_RUNNING: timeout", "no state means running"},
		"another cookie":         {"open-sesame", "open", "did not start"},
		"versions unknown to it": {"[4]", "[7]", "did not start"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, string(good), c.old)
			path := filepath.Join(t.TempDir(), "profile.yaml")
			require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(good), c.old, c.new, 1)), 0o600))
			s := *s
			s.conf = map[string]any{"binary": built.stand, "profile": path, "groups": []string{group}, "max": 6, "plugin_config": map[string]any{"cloud": s.path}}
			err := fleeting.New().Configure(t.Context(), s.config())
			require.ErrorContains(t, err, c.want)
			require.Empty(t, children(t, os.Getpid()))
			require.Zero(t, s.read().Inits)
		})
	}
}
