package memstore

import (
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

// DropSetting forgets a setting.
func (s *Store) DropSetting(kind, name string) error {
	if err := s.canWrite(); err != nil {
		return err
	}
	delete(s.settings[kind], name)
	return nil
}
