package providertest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// regional has one setting, region, which its schema knows better or worse.
type regional struct {
	pluginsdk.Provider
	schema string
	closed bool
}

func (r *regional) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{Name: "regional", Version: "1.0.0", ConfigSchema: r.schema}, nil
}

func (r *regional) Configure(_ context.Context, data []byte) error {
	var c struct {
		Region string `json:"region" config:"required"`
	}
	if err := pluginsdk.DecodeConfig(data, &c); err != nil || c.Region != "moon" {
		return err
	}
	return errors.New("the moon is away")
}

func (r *regional) Close(context.Context) error {
	r.closed = true
	return nil
}

func TestConfigCases(t *testing.T) {
	const good = `{"type": "object", "additionalProperties": false, "required": ["region"], "properties": {"region": {"type": "string", "minLength": 1}}}`
	for _, c := range []struct {
		schema string
		ConfigCase
		says string // "": nothing is wrong
	}{
		{good, ConfigCase{Config: `{"region": "r"}`}, ""},
		{good, ConfigCase{Config: `{"region": ""}`, Mistakes: []string{"region"}}, ""},
		{good, ConfigCase{Config: `{"x": 1}`, Mistakes: []string{"x: ", "region: missing"}}, ""},
		{`{}`, ConfigCase{Config: `{}`, Mistakes: []string{"region"}, BeyondSchema: true}, ""},
		{`{}`, ConfigCase{Config: `{}`, Mistakes: []string{"region"}}, "the schema allows it"},
		{good, ConfigCase{Config: `{}`, Mistakes: []string{"region"}, BeyondSchema: true}, "the schema refuses it"},
		{`false`, ConfigCase{Config: `{"region": "r"}`}, "the schema refuses it"},
		{`{}`, ConfigCase{Config: `{}`}, "it is refused"},
		{`{}`, ConfigCase{Config: `{"region": "r"}`, Mistakes: []string{"region"}, BeyondSchema: true}, "invalid"},
		{`{}`, ConfigCase{Config: `{}`, Mistakes: []string{"zone"}, BeyondSchema: true}, `nothing is said of "zone"`},
		{`{}`, ConfigCase{Config: `{"region": "moon"}`, Mistakes: []string{"moon"}, BeyondSchema: true}, "transient"},
		{`{"type": 5}`, ConfigCase{Config: `{}`}, "the schema is not valid"},
		{good, ConfigCase{Config: `{`}, "the case is not JSON"},
	} {
		p := &regional{schema: c.schema}
		err := c.check(t.Context(), p)
		if c.says == "" {
			require.NoError(t, err, c.Config)
			require.True(t, p.closed)
			continue
		}
		require.ErrorContains(t, err, c.says)
	}
}
