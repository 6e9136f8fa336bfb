package policy

import "time"

// maxSamples bounds each window of State [samples], and with it the state that is saved
// before each action. It is also how finely a window is divided: a need may be
// remembered for 1/58 of the window too long, never too short. Each direction has a
// window of its own, so that a long one makes the other no coarser.
const maxSamples = 60

// State is what Decide remembers between calls. It is a value: Decide returns a
// new one and leaves the old one as it was.
type State struct {
	LastOutAt  time.Time `json:"last_out_at,omitzero"` // when instances were last asked for
	LastInAt   time.Time `json:"last_in_at,omitzero"`  // when instances were last removed or withdrawn
	Window     []Sample  `json:"window,omitempty"`     // for scale-in, oldest first
	OutWindow  []Sample  `json:"out_window,omitempty"` // for scale-out
	BelowSince time.Time `json:"below_since,omitzero"` // Need Step: since when scale-in has been due
	GroupSeen  bool      `json:"group_seen,omitempty"` // Held is known
	Held       int       `json:"held,omitempty"`       // the group's desired number that we last saw or asserted
}

// Sample is what a part of a window saw.
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
// length. Where it has no length there is nothing to remember. What a clock that was
// ahead, as another replica's may be, has put into times to come counts as of now: to
// drop it would be to forget what was just seen.
func remember(window []Sample, now Sample, length time.Duration) []Sample {
	if length <= 0 {
		return nil
	}
	// One length touches one part more than fit into it, two with the remainder.
	part := max(length/(maxSamples-2), 1)
	kept := make([]Sample, 0, min(len(window)+1, maxSamples))
	add := func(s Sample) {
		if last := len(kept) - 1; last >= 0 && kept[last].At.Truncate(part).Equal(s.At.Truncate(part)) {
			kept[last] = kept[last].merged(s)
			return
		}
		kept = append(kept, s)
	}
	for _, s := range window {
		age := now.At.Sub(s.At)
		if age < 0 {
			s.At = now.At
		}
		if age < length {
			add(s)
		}
	}
	add(now)
	return kept
}

func (s Sample) merged(newer Sample) Sample {
	return Sample{
		At: newer.At, Need: max(s.Need, newer.Need), Least: min(s.Least, newer.Least),
		Present: max(s.Present, newer.Present), Removed: s.Removed + newer.Removed,
	}
}

// seen sums up what a window has that is younger than length, this moment included.
func (c *calculation) seen(window []Sample, length time.Duration) Sample {
	sum := Sample{At: c.now, Need: c.n, Least: c.n, Present: c.present}
	for _, s := range window {
		if c.now.Sub(s.At) < length {
			sum = s.merged(sum)
		}
	}
	return sum
}
