package config_test

import (
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
)

// units are what a pool's numbers count. Durations say theirs in their value.
var units = map[string]string{
	"capacity_per_instance": "jobs",
	"min":                   "instances",
	"max":                   "instances",
	"idle_count":            "instances",
	"idle_factor":           "ratio",
	"max_uses":              "jobs",
	"tolerance":             "ratio",
	"step_limit":            "instances",
	"max_removals_per_tick": "instances",
	"percent_budget":        "percent",
	"step":                  "instances",
}

// Whoever comes from another autoscaler has numbers that may count something else
// there: the example says of each what it counts here.
func TestX17_EveryNumberSaysWhatItCounts(t *testing.T) {
	numbers := map[string]bool{"capacity_per_instance": true}
	numbersOf(reflect.TypeFor[config.Policy](), numbers)
	for name := range numbers {
		unit, known := units[name]
		require.True(t, known, "say in units what %s counts", name)
		lines := regexp.MustCompile(`(?m)^ +`+name+`: [^#\n]*(#.*)?$`).FindAllStringSubmatch(config.Example, -1)
		require.NotEmpty(t, lines, "the example has no line for %s", name)
		for _, line := range lines {
			require.Regexp(t, `\b`+unit+`\b`, line[1], "%s counts %s: the example is to say so", name, unit)
		}
	}
	require.Len(t, numbers, len(units))
}

func numbersOf(t reflect.Type, into map[string]bool) {
	for _, f := range reflect.VisibleFields(t) {
		switch {
		case f.Type.Kind() == reflect.Struct:
			numbersOf(f.Type, into)
		case f.Type == reflect.TypeFor[time.Duration]():
		case f.Type.Kind() == reflect.Int, f.Type.Kind() == reflect.Float64:
			into[f.Tag.Get("yaml")] = true
		}
	}
}
