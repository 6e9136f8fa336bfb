package providers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func TestSpecReportsEveryMistake(t *testing.T) {
	bad := Spec{
		Path: "bin/plugin", SHA256: "abc", Config: make([]byte, MaxConfigBytes+1),
		Env: []string{"A=B", "PLUGIN_CLIENT_CERT", "SPILLWAY_PLUGIN_STDIN"},
	}
	err := bad.Validate()
	require.ErrorIs(t, err, pluginsdk.ErrInvalid)
	for _, want := range []string{
		"needs a name", `"bin/plugin" is not absolute`, "64 hex digits", "1048577 bytes of config",
		`"A=B" can't name a variable`, "PLUGIN_CLIENT_CERT belongs to the handshake", "SPILLWAY_PLUGIN_STDIN belongs",
	} {
		require.ErrorContains(t, err, want)
	}
	good := Spec{Name: "aws", Path: "/opt/plugin", SHA256: strings.Repeat("aB", 32), Env: make([]string, MaxEnv)}
	for i := range good.Env {
		good.Env[i] = "V" + itoa(i)
	}
	require.NoError(t, good.Validate())
	good.Env = append(good.Env, "ONE_MORE")
	require.ErrorContains(t, good.Validate(), "65 variables, the limit is 64")
}

func TestSpecsThatOneProcessCanServe(t *testing.T) {
	base := Spec{Name: "a", Config: []byte(`{}`), Env: []string{"X", "Y"}}
	same := Spec{Name: "b", Config: []byte(`{}`), Env: []string{"Y", "X"}}
	require.Equal(t, base.key("sum"), same.key("sum"), "the name is ours, not the process's")
	for _, other := range []Spec{
		{Config: []byte(`{ }`), Env: []string{"X", "Y"}},
		{Config: []byte(`{}`), Env: []string{"X"}},
		{Config: []byte(`{}`), Env: []string{"XY"}},
	} {
		require.NotEqual(t, base.key("sum"), other.key("sum"))
	}
	require.NotEqual(t, base.key("sum"), base.key("other binary"))
}

func TestSchemasCannotMakeTheHostReadFiles(t *testing.T) {
	for _, ref := range []string{"file:///etc/passwd", "http://127.0.0.1/x", "other.json"} {
		err := checkConfig(`{"$ref":"`+ref+`"}`, []byte(`{}`))
		require.ErrorIs(t, err, pluginsdk.ErrInvalid)
		require.ErrorContains(t, err, "outside the schema")
	}
	require.NoError(t, checkConfig(`{"$ref":"#/$defs/c","$defs":{"c":{"type":"object"}}}`, []byte(`{}`)))
	require.ErrorContains(t, checkConfig(strings.Repeat(" ", MaxSchemaBytes+1), []byte(`{}`)), "the limit is 1048576")
}
