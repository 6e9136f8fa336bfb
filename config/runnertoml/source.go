package runnertoml

import (
	"errors"
	"fmt"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// Limits of a file.
const (
	MaxFileBytes = 1 << 20
	MaxRunners   = 500
)

// file is as much of a config.toml as an import looks at.
type file struct {
	Concurrent int      `toml:"concurrent"`
	Runners    []runner `toml:"runners"`
}

type runner struct {
	Name       string         `toml:"name"`
	ID         int64          `toml:"id"`
	URL        string         `toml:"url"`
	Executor   string         `toml:"executor"`
	Limit      int            `toml:"limit"`
	Autoscaler *autoscaler    `toml:"autoscaler"`
	Machine    map[string]any `toml:"machine"`
}

type autoscaler struct {
	CapacityPerInstance int            `toml:"capacity_per_instance"`
	MaxUseCount         int            `toml:"max_use_count"`
	MaxInstances        int            `toml:"max_instances"`
	Plugin              string         `toml:"plugin"`
	PluginConfig        map[string]any `toml:"plugin_config"`
	Policy              []period       `toml:"policy"`
	rest                map[string]any // the settings that none of the above is
}

type period struct {
	Periods          []string `toml:"periods"`
	Timezone         string   `toml:"timezone"`
	IdleCount        int      `toml:"idle_count"` // jobs
	IdleTime         duration `toml:"idle_time"`
	ScaleFactor      float64  `toml:"scale_factor"`
	ScaleFactorLimit int      `toml:"scale_factor_limit"`
	PreemptiveMode   *bool    `toml:"preemptive_mode"`
}

// always reports whether the period is every minute of every day.
func (p *period) always() bool {
	for _, cron := range p.Periods {
		if cron != "* * * * *" {
			return false
		}
	}
	return true
}

// duration is text with a unit, or a number of nanoseconds.
type duration time.Duration

// UnmarshalText reads "20m0s".
func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.40q is not a duration such as 20m0s", text)
	}
	*d = duration(parsed)
	return nil
}

// read decodes a file. Secrets that stand in it are not among what is decoded, but
// for plugin_config and what else an autoscaler has.
func read(data []byte) (*file, error) {
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("more than %d bytes: is this a config.toml?", MaxFileBytes)
	}
	var f file
	if err := toml.Unmarshal(data, &f); err != nil {
		return nil, readable(err)
	}
	if len(f.Runners) > MaxRunners {
		return nil, fmt.Errorf("%d runners, at most %d are taken at once", len(f.Runners), MaxRunners)
	}
	var loose struct {
		Runners []struct {
			Autoscaler map[string]any `toml:"autoscaler"`
		} `toml:"runners"`
	}
	if err := toml.Unmarshal(data, &loose); err != nil {
		return nil, readable(err)
	}
	for i := range f.Runners {
		if a := f.Runners[i].Autoscaler; a != nil {
			a.rest = loose.Runners[i].Autoscaler
			for _, known := range []string{"capacity_per_instance", "max_use_count", "max_instances", "plugin", "plugin_config", "policy"} {
				delete(a.rest, known)
			}
		}
	}
	return &f, nil
}

// readable is the decoder's error without the lines of the file, which hold tokens.
func readable(err error) error {
	var at *toml.DecodeError
	if errors.As(err, &at) {
		row, column := at.Position()
		return fmt.Errorf("line %d, column %d: %s", row, column, at.Error())
	}
	return fmt.Errorf("not a config.toml: %w", err)
}
