package jobrouter

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
)

// maxFeatureSets bounds the sets that are remembered [sets]. A fleet has a handful: one
// for each version and executor. Beyond it, sets are read anew for each question.
const maxFeatureSets = 256

// features is what a runner says that it can do. GitLab fails a job whose features the
// asking runner lacks, so a job that was asked for with one set may go to a machine that
// has at least that.
type features struct {
	raw   json.RawMessage // as sent
	names []string        // those that are true, sorted
}

// covers reports whether f has everything that other has.
func (f *features) covers(other *features) bool {
	if f == other {
		return true
	}
	have := f.names
	for _, name := range other.names {
		i, found := slices.BinarySearch(have, name)
		if !found {
			return false
		}
		have = have[i+1:]
	}
	return true
}

func readFeatures(raw json.RawMessage) *features {
	var flags map[string]json.RawMessage
	_ = json.Unmarshal(raw, &flags) // what can't be read declares nothing
	maps.DeleteFunc(flags, func(_ string, v json.RawMessage) bool { return string(v) != "true" })
	return &features{raw: raw, names: slices.Sorted(maps.Keys(flags))}
}

// featureSets keeps one copy of each set, since thousands of calls that wait say the
// same.
type featureSets struct {
	mu struct {
		sync.Mutex
		byText map[string]*features
	}
}

func (s *featureSets) of(raw json.RawMessage) *features {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.mu.byText[string(raw)]; ok {
		return f
	}
	f := readFeatures(raw)
	if s.mu.byText == nil {
		s.mu.byText = map[string]*features{}
	}
	if len(s.mu.byText) < maxFeatureSets {
		s.mu.byText[string(raw)] = f
	}
	return f
}
