package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-ci/spillway"
)

const (
	// MaxSettingBytes bounds one setting [bytes].
	MaxSettingBytes = 16 << 10
	// MaxSettings bounds the settings of one kind [settings]: two for each pool.
	MaxSettings = 2 * spillway.MaxPools
)

// ErrTooMany says that there is no room for another one.
var ErrTooMany = errors.New("too many")

var settingScript = mustScript("setting")

func (s *Store) settingsKey(kind string) string { return s.key("s:"+kind, "settings") }

func checkSetting(kind, name string) error {
	if !sharedName(kind) || !printable(name, maxNameBytes) {
		return fmt.Errorf("%w: setting %.40q of kind %.40q", spillway.ErrInvalid, name, kind)
	}
	return nil
}

// PutSetting keeps what somebody has set at run time, for every replica and until
// DropSetting; SettingPokes fires.
func (s *Store) PutSetting(ctx context.Context, kind, name string, data []byte) error {
	_, err := s.putSetting(ctx, kind, name, data, putAlways, nil)
	return err
}

// CreateSetting is PutSetting for a name that is free. It reports whether it was.
func (s *Store) CreateSetting(ctx context.Context, kind, name string, data []byte) (created bool, err error) {
	return s.putSetting(ctx, kind, name, data, putIfFree, nil)
}

// SwapSetting is PutSetting if the setting is still what it was when somebody looked; nil:
// its name was free. It reports whether that was so: else somebody else has written since,
// and nothing was changed.
func (s *Store) SwapSetting(ctx context.Context, kind, name string, was, data []byte) (swapped bool, err error) {
	if was == nil {
		return s.putSetting(ctx, kind, name, data, putIfFree, nil)
	}
	return s.putSetting(ctx, kind, name, data, putIfSame, was)
}

// When a setting is put, as scripts/setting.lua has it.
const (
	putAlways = iota
	putIfFree
	putIfSame
)

func (s *Store) putSetting(ctx context.Context, kind, name string, data []byte, when int, was []byte) (bool, error) {
	if err := checkSetting(kind, name); err != nil {
		return false, fmt.Errorf("store: put setting: %w", err)
	}
	if len(data) > MaxSettingBytes {
		return false, fmt.Errorf("store: put setting %s: %w: %d bytes, at most %d are allowed", name, spillway.ErrInvalid, len(data), MaxSettingBytes)
	}
	ctx, done := s.begin(ctx)
	defer done()
	code, err := s.runOne(ctx, call{settingScript, []string{s.settingsKey(kind)}, []any{name, data, when, MaxSettings, s.settingsChannel(kind), was}})
	switch {
	case err != nil:
		return false, failed("put setting", err, writing)
	case asInt(code) == 2:
		return false, fmt.Errorf("store: put setting %s: %w: %d of kind %s are kept", name, ErrTooMany, MaxSettings, kind)
	}
	return asInt(code) == 0, nil
}

// DropSetting forgets a setting. It reports whether there was one.
func (s *Store) DropSetting(ctx context.Context, kind, name string) (dropped bool, err error) {
	if err := checkSetting(kind, name); err != nil {
		return false, fmt.Errorf("store: drop setting: %w", err)
	}
	ctx, done := s.begin(ctx)
	defer done()
	n, err := s.rdb.HDel(ctx, s.settingsKey(kind), name).Result()
	if err != nil {
		return false, failed("drop setting", err, writing)
	}
	return n > 0, failed("drop setting", s.rdb.Publish(ctx, s.settingsChannel(kind), "").Err(), writing)
}

// Settings returns all settings of a kind, by name.
func (s *Store) Settings(ctx context.Context, kind string) (map[string][]byte, error) {
	if err := checkSetting(kind, "-"); err != nil {
		return nil, fmt.Errorf("store: settings: %w", err)
	}
	ctx, done := s.begin(ctx)
	defer done()
	kept, err := s.rdb.HGetAll(ctx, s.settingsKey(kind)).Result()
	if err != nil {
		return nil, failed("settings", err, reading)
	}
	settings := make(map[string][]byte, len(kept))
	for name, data := range kept {
		settings[name] = []byte(data)
	}
	return settings, nil
}

// SettingPokes fires after any replica has changed a setting of the kind, and when
// that may have been missed. It is closed when ctx or the store ends.
func (s *Store) SettingPokes(ctx context.Context, kind string) (<-chan struct{}, error) {
	if err := checkSetting(kind, "-"); err != nil {
		return nil, fmt.Errorf("store: setting pokes: %w", err)
	}
	return s.pokes(ctx, "settings:"+kind)
}

// oneIf is a condition as scripts have it.
func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (s *Store) settingsChannel(kind string) string { return s.channel("settings:" + kind) }
