package fake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// MaxGroups bounds the groups of one provider [groups].
const MaxGroups = 5_000

// settings is what Configure was given.
type settings struct {
	seed   uint64
	groups map[string]Config
	faults []*fault
}

// The JSON object of Configure. Absent fields keep the defaults.
type (
	jsonSettings struct {
		Seed   uint64                     `json:"seed"`
		Groups map[string]json.RawMessage `json:"groups"`
		Faults []jsonFault                `json:"faults"`
	}
	jsonGroup struct {
		Boot          *jsonBoot    `json:"boot"`
		Min           *int         `json:"min"`
		Max           *int         `json:"max"`
		Initial       *int         `json:"initial"`
		NeverRegister *jsonNever   `json:"never_register"`
		Errors        []jsonWindow `json:"errors"`
		Partial       *float64     `json:"partial"`
		LateFill      *duration    `json:"late_fill"`
		VisibleAfter  *duration    `json:"visible_after"`
		Victim        *Victim      `json:"victim"`
		Protected     *bool        `json:"protected"`
		AutoReplace   *bool        `json:"auto_replace"`
		Price         *float64     `json:"price"`
	}
	jsonNever struct {
		Every int      `json:"every"`
		IDs   []string `json:"ids"`
		All   bool     `json:"all"`
	}
	jsonWindow struct {
		From     duration       `json:"from"`
		To       duration       `json:"to"`
		Kind     pluginsdk.Kind `json:"kind"`
		Ratio    *float64       `json:"ratio"`
		Delivery Delivery       `json:"delivery"`
	}
	jsonFault struct {
		On    string         `json:"on"`
		Do    string         `json:"do"`
		Kind  pluginsdk.Kind `json:"kind"`
		After int            `json:"after"`
		Times int            `json:"times"`
	}
)

// duration is "90s" in JSON.
type duration time.Duration

func (d *duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = duration(v)
	return err
}

// jsonBoot is "60s" or {"p50": "60s", "p95": "120s"}.
type jsonBoot Boot

func (b *jsonBoot) UnmarshalJSON(data []byte) error {
	var fixed duration
	if len(data) > 0 && data[0] == '"' {
		err := json.Unmarshal(data, &fixed)
		*b = jsonBoot{P50: time.Duration(fixed)}
		return err
	}
	var q struct {
		P50 duration `json:"p50"`
		P95 duration `json:"p95"`
	}
	err := strict(data, &q)
	*b = jsonBoot{P50: time.Duration(q.P50), P95: time.Duration(q.P95)}
	return err
}

// parseSettings reads Configure's object; every mistake is in the one error.
func parseSettings(data []byte) (settings, error) {
	var raw jsonSettings
	if err := strict(data, &raw); err != nil {
		return settings{}, pluginsdk.Errorf(pluginsdk.KindInvalid, "fake provider: %w", err)
	}
	var errs []error
	if len(raw.Groups) == 0 || len(raw.Groups) > MaxGroups {
		errs = append(errs, fmt.Errorf("groups: %d, use 1 to %d", len(raw.Groups), MaxGroups))
	}
	s := settings{seed: raw.Seed, groups: make(map[string]Config, len(raw.Groups))}
	for _, name := range slices.Sorted(maps.Keys(raw.Groups)) {
		cfg, err := parseGroup(raw.Groups[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("group %q: %w", name, err))
		}
		s.groups[name] = cfg
	}
	for i, f := range raw.Faults {
		parsed, err := f.parse()
		if err != nil {
			errs = append(errs, fmt.Errorf("faults[%d]: %w", i, err))
		}
		s.faults = append(s.faults, parsed)
	}
	if err := errors.Join(errs...); err != nil {
		return settings{}, pluginsdk.Errorf(pluginsdk.KindInvalid, "fake provider: %w", err)
	}
	return s, nil
}

func parseGroup(data []byte) (Config, error) {
	var g jsonGroup
	if err := strict(data, &g); err != nil {
		return Config{}, err
	}
	cfg := Defaults()
	override(&cfg.Boot, (*Boot)(g.Boot))
	override(&cfg.Min, g.Min)
	override(&cfg.Max, g.Max)
	cfg.Initial = cfg.Min
	override(&cfg.Initial, g.Initial)
	override(&cfg.NeverRegister, (*NeverRegister)(g.NeverRegister))
	override(&cfg.Partial, g.Partial)
	override(&cfg.LateFill, (*time.Duration)(g.LateFill))
	override(&cfg.VisibleAfter, (*time.Duration)(g.VisibleAfter))
	override(&cfg.Victim, g.Victim)
	override(&cfg.Protected, g.Protected)
	override(&cfg.AutoReplace, g.AutoReplace)
	override(&cfg.PricePerHour, g.Price)
	for _, w := range g.Errors {
		window := ErrorWindow{
			From: time.Duration(w.From), To: time.Duration(w.To),
			Kind: w.Kind, Ratio: 1, Delivery: ByCall,
		}
		override(&window.Ratio, w.Ratio)
		if w.Delivery != "" {
			window.Delivery = w.Delivery
		}
		cfg.Errors = append(cfg.Errors, window)
	}
	return cfg, cfg.Validate()
}

func override[T any](dst, given *T) {
	if given != nil {
		*dst = *given
	}
}

// strict decodes exactly one JSON value and refuses unknown keys.
func strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}
