package fake

import (
	"cmp"
	"slices"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// MaxGroups bounds the groups of one provider [groups].
const MaxGroups = 5_000

// settings is what Configure was given.
type settings struct {
	Seed   uint64                   `json:"seed"`
	Groups map[string]groupSettings `json:"groups" config:"required"`
	Faults []faultSettings          `json:"faults"`
}

// groupSettings is a Config that begins at its min where it is not told otherwise.
type groupSettings struct {
	Config
	Initial *int `json:"initial"`
}

type faultSettings struct {
	On    string         `json:"on" config:"required"`
	Do    string         `json:"do" config:"required"`
	Kind  pluginsdk.Kind `json:"kind"`
	After int            `json:"after"`
	Times int            `json:"times"`
}

// Check implements pluginsdk.ConfigChecker.
func (s *settings) Check(problems *pluginsdk.Problems) {
	if len(s.Groups) > MaxGroups {
		problems.Addf("groups", "%d, use 1 to %d", len(s.Groups), MaxGroups)
	}
}

// SetDefaults implements pluginsdk.ConfigDefaulter.
func (g *groupSettings) SetDefaults() { g.Config = Defaults() }

// Check implements pluginsdk.ConfigChecker.
func (g *groupSettings) Check(problems *pluginsdk.Problems) {
	for _, err := range g.config().mistakes() {
		problems.Addf("", "%s", err)
	}
}

func (g *groupSettings) config() Config {
	c := g.Config
	c.Initial = *cmp.Or(g.Initial, &c.Min)
	return c
}

// SetDefaults implements pluginsdk.ConfigDefaulter: every call is refused.
func (w *ErrorWindow) SetDefaults() { *w = ErrorWindow{Ratio: 1, Delivery: ByCall} }

// UnmarshalJSON reads "60s" or {"p50": "60s", "p95": "120s"}.
func (b *Boot) UnmarshalJSON(data []byte) error {
	type quantiles Boot // without this method
	*b = Boot{}
	if len(data) > 0 && data[0] == '{' {
		return pluginsdk.DecodeConfig(data, (*quantiles)(b))
	}
	return pluginsdk.DecodeConfig(data, &b.P50)
}

// Check implements pluginsdk.ConfigChecker.
func (f *faultSettings) Check(problems *pluginsdk.Problems) {
	if !slices.Contains(ops, f.On) {
		problems.Addf("on", "%q, use one of %v", f.On, ops)
	}
	if f.Do != doHang && f.Do != doExit && f.Do != doError {
		problems.Addf("do", "%q, use hang, exit or error", f.Do)
	}
	if f.After < 0 || f.Times < 0 {
		problems.Addf("", "after and times must not be negative")
	}
	switch {
	case (f.Do == doError) != (f.Kind != ""):
		problems.Addf("kind", "it goes with do: error, and only with it")
	case f.Do == doError && !knownKind(f.Kind):
		problems.Addf("kind", "%q, use capacity, quota, throttled, auth, invalid or transient", f.Kind)
	}
}

func (f *faultSettings) fault() *fault {
	left := f.Times
	if left == 0 {
		left = -1
	}
	return &fault{on: f.On, do: f.Do, kind: f.Kind, after: f.After, left: left}
}
