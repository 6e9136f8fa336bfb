package demand

import (
	"math/bits"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

// noGroup is the group of a class that no pool can take.
const noGroup = -1

// eligibility says which pools may take which classes. Pools of one capability
// answer alike, so the matcher is asked once per distinct capability; classes
// that the same capabilities can take form one group, and the network is built of
// groups. A fleet with thousands of classes has tens of groups.
type eligibility struct {
	capabilityOf []int    // of each pool
	firstPool    []int    // of each distinct capability: its first pool in order
	groupOf      []int    // of each class entry; noGroup where no pool can take it
	groups       int      // number of groups
	index        *Index   // of the distinct capabilities; nil where it doesn't pay
	everyone     []int    // all distinct capabilities, where there is no index
	takes        []bits64 // of each distinct capability: the groups that it can take now
	// held says that some jobs are to wait for better pools: takes leaves out what they
	// may not have before those are full. See spillTo.
	held    bool
	members []bits64 // of each group: the capabilities that can take it
	waits   []bits64 // of each group: those of them that it waits for
	levels  []int    // the priorities of pools that somebody waits for, ascending
}

func newEligibility(classes []Class, pools []Supply, match Matcher) *eligibility {
	e := &eligibility{capabilityOf: make([]int, len(pools)), groupOf: make([]int, len(classes))}
	e.held = slices.ContainsFunc(pools, func(s Supply) bool { return s.SpillAfter > 0 })
	e.distinctCapabilities(pools)
	if len(classes) >= minIndexed {
		e.index = NewIndex(len(e.firstPool), func(k int) *spillway.Capability { return &pools[e.firstPool[k]].Capability })
	} else {
		e.everyone = make([]int, len(e.firstPool))
		for k := range e.everyone {
			e.everyone[k] = k
		}
	}
	e.groupClasses(classes, pools, match)
	e.findLevels(pools)
	e.spillTo(0, pools)
	return e
}

// takenBy turns each group's set of capabilities into each capability's set of groups.
func (e *eligibility) takenBy(members []bits64) []bits64 {
	takes := make([]bits64, len(e.firstPool))
	for k := range takes {
		takes[k] = newBits(e.groups)
	}
	for g, capabilities := range members {
		for k := range capabilities.all {
			takes[k].set(g)
		}
	}
	return takes
}

// minIndexed is how many class entries an index is made for: to ask about a few is
// less work than to make it. A router asks about one at a time when it isn't busy.
const minIndexed = 4

// candidates returns the capabilities to be asked about for r.
func (e *eligibility) candidates(r *spillway.Requirement) []int {
	if e.index == nil {
		return e.everyone
	}
	return e.index.Candidates(r)
}

// kind is what pools have in common that answer alike.
type kind struct {
	fingerprint spillway.Fingerprint
	alike       int
	// Where jobs wait for some pools, also what that depends on.
	priority   int
	spillAfter time.Duration
}

func (e *eligibility) distinctCapabilities(pools []Supply) {
	seen := make(map[kind]int, len(pools))
	for p := range pools {
		of := kind{alike: pools[p].Alike}
		if of.alike == 0 {
			of.fingerprint = pools[p].Capability.Fingerprint()
		}
		if e.held {
			of.priority, of.spillAfter = pools[p].Priority, pools[p].SpillAfter
		}
		k, known := seen[of]
		if !known {
			k = len(e.firstPool)
			seen[of] = k
			e.firstPool = append(e.firstPool, p)
		}
		e.capabilityOf[p] = k
	}
}

// groupClasses fills groupOf, members and waits.
func (e *eligibility) groupClasses(classes []Class, pools []Supply, match Matcher) {
	byID := make(map[spillway.JobClass]int, len(classes)) // entries of one class are alike
	bySet := make(map[string]int)
	set := newBits(len(e.firstPool))
	var name []byte
	for i := range classes {
		if classes[i].Pending <= 0 {
			e.groupOf[i] = noGroup
			continue
		}
		if g, known := byID[classes[i].ID]; known && classes[i].ID != "" && !e.held {
			e.groupOf[i] = g
			continue
		}
		clear(set)
		for _, k := range e.candidates(&classes[i].Requirement) {
			if ok, _ := match(&pools[e.firstPool[k]].Capability, &classes[i].Requirement); ok {
				set.set(k)
			}
		}
		name = set.appendTo(name[:0])
		var waits bits64
		if e.held {
			waits = e.waitedFor(set, &classes[i], pools)
			name = waits.appendTo(name)
		}
		g, known := bySet[string(name)]
		switch {
		case known:
		case set.empty():
			g = noGroup
		default:
			g = len(e.members)
			bySet[string(name)] = g
			e.members = append(e.members, set.clone())
			e.waits = append(e.waits, waits)
		}
		e.groupOf[i] = g
		byID[classes[i].ID] = g
	}
	e.groups = len(e.members)
}

// bits64 is a set of small numbers, 64 a word.
type bits64 []uint64

func newBits(size int) bits64 { return make(bits64, (size+63)/64) }

func (b bits64) set(i int) { b[i/64] |= 1 << (i % 64) }

func (b bits64) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

func (b bits64) clone() bits64 { return append(bits64(nil), b...) }

func (b bits64) empty() bool {
	for _, w := range b {
		if w != 0 {
			return false
		}
	}
	return true
}

// all calls yield for each member in ascending order.
func (b bits64) all(yield func(int) bool) {
	for i, w := range b {
		for ; w != 0; w &= w - 1 {
			if !yield(i*64 + bits.TrailingZeros64(w)) {
				return
			}
		}
	}
}

func (b bits64) appendTo(buf []byte) []byte {
	for _, w := range b {
		for shift := 0; shift < 64; shift += 8 {
			buf = append(buf, byte(w>>shift))
		}
	}
	return buf
}
