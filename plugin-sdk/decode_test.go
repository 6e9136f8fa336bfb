package pluginsdk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

type account struct {
	Region string `json:"region" config:"required"`
}

type pool struct {
	Name string        `json:"name" config:"required"`
	Max  int           `json:"max"`
	Boot time.Duration `json:"boot"`
}

func (p *pool) SetDefaults() { p.Max = 7 }

func (p *pool) Check(problems *pluginsdk.Problems) {
	if p.Max > 10 {
		problems.Addf("max", "%d, use at most 10", p.Max)
	}
	if strings.Contains(p.Name, "/") {
		problems.Addf("name", "has a slash")
	}
}

// either is a string or an object.
type either struct {
	Short string
	Long  pool
}

func (e *either) UnmarshalJSON(data []byte) error {
	if data[0] == '{' {
		return pluginsdk.DecodeConfig(data, &e.Long)
	}
	return pluginsdk.DecodeConfig(data, &e.Short)
}

type settings struct {
	account
	Seed    uint8           `json:"seed"`
	Share   float64         `json:"share"`
	Dry     *bool           `json:"dry"`
	Address netip.Addr      `json:"address"`
	Free    any             `json:"free"`
	Pools   []pool          `json:"pools"`
	ByName  map[string]pool `json:"by_name"`
	Numbers map[int]string  `json:"numbers"`
	Either  either          `json:"either"`
	Own     string          // no setting
	Skipped string          `json:"-"`
}

func (s *settings) Check(problems *pluginsdk.Problems) {
	if len(s.Pools) == 1 {
		problems.Addf("pools", "one is not enough")
		problems.Addf("pools[0].name", "is lonely")
	}
}

func TestDecodeConfig(t *testing.T) {
	kept := settings{Seed: 1, Share: 0.5, Own: "mine"}
	require.NoError(t, pluginsdk.DecodeConfig([]byte(` {
		"region": "r", "seed": 255, "dry": false, "address": "::1", "free": [1],
		"pools": [{"name": "a", "boot": "1m30s"}, {"name": "b", "max": 0}],
		"by_name": {"x": {"name": "c"}}, "numbers": {"4": "four"}, "either": {"name": "d"}
	}
`), &kept))
	dry := false
	require.Equal(t, settings{
		account: account{"r"}, Seed: 255, Share: 0.5, Own: "mine", Dry: &dry, Address: netip.IPv6Loopback(), Free: []any{1.0},
		Pools:  []pool{{"a", 7, 90 * time.Second}, {"b", 0, 0}},
		ByName: map[string]pool{"x": {"c", 7, 0}}, Numbers: map[int]string{4: "four"}, Either: either{Long: pool{"d", 7, 0}},
	}, kept)
}

// Each mistake is told with its path, and alone: none causes another.
func TestMistakesInConfigs(t *testing.T) {
	for config, says := range map[string]string{
		`{}`:                                           `region: missing`,
		`{"region": ""}`:                               `region: must not be empty`,
		`[]`:                                           `must be an object, not a list`,
		`null`:                                         `must be an object, not null`,
		`"s"`:                                          `must be an object, not a string`,
		`{"region": "r", "regoin": "r"}`:               `regoin: there is no such setting; did you mean region?`,
		`{"region": "r", "Own": "x"}`:                  `Own: there is no such setting; there are region, seed, share, dry, address, free, pools, by_name, numbers, either`,
		`{"region": "r", "Region": "r"}`:               `Region: there is no such setting; did you mean region?`,
		`{"region": "r", "a b\n": 1}`:                  `"a b\n": there is no such setting`,
		`{"region": 7}`:                                `region: must be a string, not a number`,
		`{"region": null}`:                             `region: must be a string, not null`,
		`{"region": true}`:                             `region: must be a string, not true or false`,
		`{"region": "r", "seed": "1"}`:                 `seed: must be a whole number of 0 or more, not a string`,
		`{"region": "r", "seed": 256}`:                 `seed: must be a whole number of 0 or more in 8 bits, not 256`,
		`{"region": "r", "seed": -1}`:                  `seed: must be a whole number of 0 or more in 8 bits, not -1`,
		`{"region": "r", "share": {}}`:                 `share: must be a number, not an object`,
		`{"region": "r", "dry": "yes"}`:                `dry: must be true or false, not a string`,
		`{"region": "r", "dry": null}`:                 `dry: must be true or false, not null`,
		`{"region": "r", "address": "x"}`:              `address: ParseAddr`,
		`{"region": "r", "address": 7}`:                `address: must be a string, not a number`,
		`{"region": "r", "pools": {}}`:                 `pools: must be a list, not an object`,
		`{"region": "r", "pools": [{"name": "a"}, 5]}`: `pools[1]: must be an object, not a number`,
		`{"region": "r", "pools": [{"name": "a"}, {"name": "b/"}]}`:            `pools[1].name: has a slash`,
		`{"region": "r", "pools": [{"name": "a"}, {"name": "b", "mx": 1}]}`:    `pools[1].mx: there is no such setting; did you mean max?`,
		`{"region": "r", "pools": [{"name": "a"}, {"name": "b", "max": 1.5}]}`: `pools[1].max: must be a whole number in 64 bits, not 1.5`,
		`{"region": "r", "pools": [{"name": "a"}, {"name": "b", "max": 11}]}`:  `pools[1].max: 11, use at most 10`,
		`{"region": "r", "pools": [{"name": "a"}, {"name": "b", "boot": 5}]}`:  `pools[1].boot: must be a duration in quotes, such as "90s", not a number`,
		`{"region": "r", "pools": [{"name": "a"}, {"name": "b", "boot": ""}]}`: `pools[1].boot: use a duration such as 90s or 1h30m`,
		`{"region": "r", "by_name": []}`:                                       `by_name: must be an object, not a list`,
		`{"region": "r", "by_name": {"x": {}}}`:                                `by_name.x.name: missing`,
		`{"region": "r", "by_name": {"x.y": 1}}`:                               `by_name."x.y": must be an object, not a number`,
		`{"region": "r", "numbers": {"four": "4"}}`:                            `numbers: has a part of the wrong type`,
		`{"region": "r", "either": 5}`:                                         `either: must be a string, not a number`,
		`{"region": "r", "either": {"naem": 5, "name": "d"}}`:                  `either.naem: there is no such setting; did you mean name?`,
	} {
		var s settings
		err := pluginsdk.DecodeConfig([]byte(config), &s)
		require.ErrorIs(t, err, pluginsdk.ErrInvalid, config)
		require.True(t, strings.HasPrefix(err.Error(), "invalid: config: "+says), "%s: %s", config, err)
		require.NotContains(t, err.Error(), "\n", "%s: more than one mistake", config)
	}
	for _, config := range []string{``, `{`, `{} {}`, `{"region": "r"} x`} {
		require.ErrorIs(t, pluginsdk.DecodeConfig([]byte(config), new(settings)), pluginsdk.ErrInvalid, config)
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	err := pluginsdk.DecodeConfig([]byte(`{"regoin": "r", "seed": "s", "pools": [{"name": "", "max": 11, "size": 1}], "either": {"max": "m"}}`), new(settings))
	var e *pluginsdk.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, []string{
		`config: regoin: there is no such setting; did you mean region?`,
		`region: missing`,
		`seed: must be a whole number of 0 or more, not a string`,
		`pools[0].size: there is no such setting; there are name, max, boot`,
		`pools[0].name: must not be empty`,
		`pools[0].max: 11, use at most 10`,
		`either.name: missing`,
		`either.max: must be a whole number, not a string`,
		`pools: one is not enough`, // and nothing of pools[0].name, which was missing
	}, strings.Split(e.Message, "\n"))
}

// A wrongly placed secret must not get into a log.
func TestNoValueInTheMistakes(t *testing.T) {
	for _, config := range []string{
		`{"region": 5550123}`, `{"region": ["s3cret"]}`, `{"dry": "s3cret"}`, `{"seed": "s3cret"}`, `{"pools": "s3cret"}`,
		`{"pools": [{"boot": "s3cret"}]}`, `{"either": {"boot": "s3cret"}}`, `{"tokn": "s3cret"}`, `{"pools": [{"boot": 5550123}]}`,
	} {
		err := pluginsdk.DecodeConfig([]byte(config), new(settings))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cret")
		require.NotContains(t, err.Error(), "5550123")
	}
}

func TestMistakesAreBounded(t *testing.T) {
	const limit = 50
	config := func(n int) []byte {
		keys := map[string]int{}
		for i := range n {
			keys[fmt.Sprintf("%0100d", i)] = i
		}
		data, err := json.Marshal(keys)
		require.NoError(t, err)
		return data
	}
	lines := func(n int) []string {
		err := pluginsdk.DecodeConfig(config(n), new(struct{}))
		return strings.Split(err.Error(), "\n")
	}
	require.Len(t, lines(limit), limit)
	require.Contains(t, lines(limit)[0], strings.Repeat("0", 64)+"…: there is no such setting; there is none at all")
	require.Len(t, lines(limit+2), limit+1)
	require.Equal(t, "and 2 more", lines(limit + 2)[limit])
}

// What encoding/json writes of a configuration reads as the same, and one key too
// many is always seen.
func TestConfigsComeBack(t *testing.T) {
	type config struct {
		Text   string            `json:"text"`
		Count  int64             `json:"count"`
		Ratio  float64           `json:"ratio"`
		Flag   bool              `json:"flag"`
		List   []string          `json:"list"`
		Labels map[string]uint16 `json:"labels"`
	}
	rapid.Check(t, func(t *rapid.T) {
		want := config{
			Text: rapid.String().Draw(t, "text"), Count: rapid.Int64().Draw(t, "count"),
			Ratio: rapid.Float64Range(-1e9, 1e9).Draw(t, "ratio"), Flag: rapid.Bool().Draw(t, "flag"),
			List:   rapid.SliceOf(rapid.String()).Draw(t, "list"),
			Labels: rapid.MapOf(rapid.String(), rapid.Uint16()).Draw(t, "labels"),
		}
		data, err := json.Marshal(want)
		require.NoError(t, err)
		var got config
		require.NoError(t, pluginsdk.DecodeConfig(data, &got))
		require.Equal(t, want, got)

		var all map[string]any
		require.NoError(t, json.Unmarshal(data, &all))
		extra := rapid.StringMatching(`[a-z]{1,8}`).Filter(func(s string) bool { _, known := all[s]; return !known }).Draw(t, "extra")
		all[extra] = 1
		data, err = json.Marshal(all)
		require.NoError(t, err)
		require.ErrorContains(t, pluginsdk.DecodeConfig(data, &got), extra+": there is no such setting")
	})
}

func FuzzDecodeConfig(f *testing.F) {
	f.Add([]byte(`{"region": "r", "pools": [{"name": "a", "boot": "1s"}], "either": {"max": 1}, "by_name": {"x": null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := pluginsdk.DecodeConfig(data, new(settings)); err != nil {
			require.True(t, errors.Is(err, pluginsdk.ErrInvalid))
		}
	})
}

func ExampleDecodeConfig() {
	type group struct {
		Name string `json:"name" config:"required"`
		Max  int    `json:"max" config:"required"`
	}
	var config struct {
		Region   string        `json:"region" config:"required"`
		Cooldown time.Duration `json:"cooldown"`
		Groups   []group       `json:"groups" config:"required"`
	}
	config.Cooldown = time.Minute // the default
	err := pluginsdk.DecodeConfig([]byte(`{
		"regoin": "eu-central-1",
		"groups": [{"name": "linux", "max": 10}, {"name": "arm", "max": "10"}]
	}`), &config)
	fmt.Println(err)
	// Output:
	// invalid: config: regoin: there is no such setting; did you mean region?
	// region: missing
	// groups[1].max: must be a whole number, not a string
}
