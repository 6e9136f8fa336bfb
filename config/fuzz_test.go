package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
)

// FuzzParse: no bytes make it panic, every error is ErrInvalid, and what it takes
// it takes again, with the same meaning, after it was written out in full.
func FuzzParse(f *testing.F) {
	f.Add(config.Example)
	f.Add(minimal)
	f.Add(pool("policy: &p {max: 3, scale_in: {percent_budget: 50}}"))
	f.Add("providers: {m: {plugin: ./p, config: {a: [1, 2.5, x, null, 0x1f, 1e30]}}}\npools: [{name: a, capability: {run_untagged: true}, provider: m}]")
	f.Add("pools: &p\n  - *p\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := config.ParseWith("f", []byte(text), config.Options{ProviderOptional: len(text)%2 == 0})
		if err != nil {
			require.ErrorIs(t, err, config.ErrInvalid)
			require.NotEmpty(t, err.Error())
			return
		}
		whole, err := c.YAML()
		require.NoError(t, err)
		again, err := config.ParseWith("f", whole, config.Options{ProviderOptional: len(text)%2 == 0})
		require.NoError(t, err, string(whole))
		same, err := again.YAML()
		require.NoError(t, err)
		require.Equal(t, string(whole), string(same))
	})
}
