package memstore

import (
	"bytes"
	"maps"
	"slices"
)

// Settings returns all settings of a kind, by name.
func (s *Store) Settings(kind string) (map[string][]byte, error) {
	if err := s.canRead(); err != nil {
		return nil, err
	}
	return maps.Clone(s.settings[kind]), nil
}

// PutSetting keeps a setting.
func (s *Store) PutSetting(kind, name string, data []byte) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	if s.settings[kind] == nil {
		s.settings[kind] = make(map[string][]byte)
	}
	s.settings[kind][name] = slices.Clone(data)
	return nil
}

// SwapSetting keeps a setting if it is still what it was; nil: there was none.
func (s *Store) SwapSetting(kind, name string, was, data []byte) (swapped bool, err error) {
	if err := s.canWrite(); err != nil {
		return false, err
	}
	if old, there := s.settings[kind][name]; there != (was != nil) || !bytes.Equal(old, was) {
		return false, nil
	}
	return true, s.PutSetting(kind, name, data)
}

// DropSetting forgets a setting.
func (s *Store) DropSetting(kind, name string) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	delete(s.settings[kind], name)
	return nil
}
