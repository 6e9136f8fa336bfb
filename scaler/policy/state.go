package policy

import "time"

// maxSamples bounds State.Window [samples], and with it the state that is saved
// before each action. It is also how finely a window is divided: a need may be
// remembered for 1/58 of the window too long, never too short.
const maxSamples = 60

// State is what Decide remembers between calls. It is a value: Decide returns a
// new one and leaves the old one as it was.
type State struct {
	LastOutAt  time.Time `json:"last_out_at,omitzero"` // when instances were last asked for
	LastInAt   time.Time `json:"last_in_at,omitzero"`  // when instances were last removed or withdrawn
	Window     []Sample  `json:"window,omitempty"`     // oldest first, within the longest window of the rules
	BelowSince time.Time `json:"below_since,omitzero"` // Need Step: since when scale-in has been due
	GroupSeen  bool      `json:"group_seen,omitempty"` // Held is known
	Held       int       `json:"held,omitempty"`       // the group's desired number that we last saw or asserted
}

// Sample is what a part of the window saw.
type Sample struct {
	At      time.Time `json:"at"`                // the last time in this part
	Need    int       `json:"need"`              // the highest need, with headroom [instances]
	Least   int       `json:"least"`             // the lowest
	Present int       `json:"present,omitempty"` // the most usable and booting [instances]
	Removed int       `json:"removed,omitempty"` // removed by decision [instances]
}

// settled is s as of now. Times to come, left behind by a clock that was set
// back, would block for as long as it was off: they count as now.
func (s State) settled(now time.Time) State {
	for _, t := range []*time.Time{&s.LastOutAt, &s.LastInAt, &s.BelowSince} {
		if t.After(now) {
			*t = now
		}
	}
	return s
}

// remember returns the window with what is seen now, without what is older than
// length. Where it has no length there is nothing to remember.
func remember(window []Sample, now Sample, length time.Duration) []Sample {
	if length <= 0 {
		return nil
	}
	kept := make([]Sample, 0, len(window)+1)
	for _, s := range window {
		if age := now.At.Sub(s.At); age >= 0 && age < length {
			kept = append(kept, s)
		}
	}
	// One length touches one part more than fit into it, two with the remainder.
	part := max(length/(maxSamples-2), 1)
	if last := len(kept) - 1; last >= 0 && kept[last].At.Truncate(part).Equal(now.At.Truncate(part)) {
		kept[last] = kept[last].merged(now)
		return kept
	}
	return append(kept, now)
}

func (s Sample) merged(newer Sample) Sample {
	return Sample{
		At: newer.At, Need: max(s.Need, newer.Need), Least: min(s.Least, newer.Least),
		Present: max(s.Present, newer.Present), Removed: s.Removed + newer.Removed,
	}
}

// within returns the samples younger than length.
func within(window []Sample, now time.Time, length time.Duration) []Sample {
	for i, s := range window {
		if now.Sub(s.At) < length {
			return window[i:]
		}
	}
	return nil
}

// seen sums up the samples younger than length, this moment included.
func (c *calculation) seen(length time.Duration) Sample {
	sum := Sample{At: c.now, Need: c.n, Least: c.n, Present: c.present}
	for _, s := range within(c.state.Window, c.now, length) {
		sum = s.merged(sum)
	}
	return sum
}
