package collect

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
)

// maxLacksBytes bounds what a replica says of single pools [bytes]: the rest of a message
// is for jobs. What takes more is said of all pools.
const maxLacksBytes = 2 << 10

// maxPoolsTold bounds the pools that a sentence names [pools].
const maxPoolsTold = 5

// lack is why it isn't known of some pools how many jobs wait for them.
type lack struct {
	Why   string   `json:"why"`
	Pools []string `json:"pools"` // names, sorted
}

// lacksOf gathers the pools by what is lacking.
func lacksOf(pools map[string]string) []lack {
	by := map[string][]string{}
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		by[pools[pool]] = append(by[pools[pool]], pool)
	}
	lacks := make([]lack, 0, len(by))
	for _, why := range slices.Sorted(maps.Keys(by)) {
		lacks = append(lacks, lack{Why: why, Pools: by[why]})
	}
	return lacks
}

// tellLacks says for people of which pools something is lacking.
func tellLacks(pools map[string]string) []string {
	var told []string
	for _, l := range lacksOf(pools) {
		named, more := l.Pools, ""
		if n := len(named) - maxPoolsTold; n > 0 {
			named, more = named[:maxPoolsTold], fmt.Sprintf(" and %d more", n)
		}
		told = append(told, fmt.Sprintf("pool %s%s: %s", strings.Join(named, ", "), more, l.Why))
	}
	return told
}

// heldLacks says of which pools it isn't known how many jobs wait, where nothing tells
// but the jobs that are held: those of runners with which GitLab can't be asked, and
// those that a job is held for, since more may wait behind it. problem is why that is so
// of all pools.
func (g *GitLab) heldLacks(held []HeldJob) (lacks []lack, problem string) {
	pools := map[string]string{}
	if g.o.HeldLacks != nil {
		for pool, why := range g.o.HeldLacks() {
			pools[pool] = sentence(errors.New(why))
		}
	}
	waiting := map[string]int{} // jobs by pool
	for i := range held {
		if len(held[i].Pools) == 0 {
			problem = "a job is held, and it is not known for which pools more may wait"
		}
		for _, pool := range held[i].Pools {
			waiting[pool]++
		}
	}
	for pool, n := range waiting {
		if _, lacking := pools[pool]; !lacking {
			pools[pool] = moreMayWait(n)
		}
	}
	if len(pools) == 0 {
		return nil, problem
	}
	lacks = lacksOf(pools)
	if data, err := json.Marshal(lacks); err != nil || len(data) > maxLacksBytes {
		return nil, fmt.Sprintf("it is not known of %d pools whether more jobs wait for them", len(pools))
	}
	return lacks, problem
}

func moreMayWait(held int) string {
	return fmt.Sprintf("%d jobs are held, and without an API token nobody knows whether more wait", held)
}

// holds reports whether some of the jobs that a replica tells of wait with it.
func holds(jobs []Sighting) bool {
	return slices.ContainsFunc(jobs, func(s Sighting) bool { return s.State == spillway.Pending })
}

// heldLacks says why the jobs that are held may not be all that wait, where nothing
// else tells of jobs: why of all pools, and of which pools besides.
func (t *tenure) heldLacks(now time.Time) (all []string, pools map[string]string) {
	pools = map[string]string{}
	if !t.ready(now) {
		all = append(all, "the replicas have not all told yet which jobs they hold")
	}
	unnamed := false
	for _, name := range slices.Sorted(maps.Keys(t.holders)) {
		h := t.holders[name]
		if now.Sub(h.at) > heldTimeout {
			delete(t.holders, name) // it is gone: another asks for its tokens
			continue
		}
		if h.problem != "" {
			all = append(all, "replica "+name+": "+h.problem)
		}
		for _, l := range h.lacks {
			for _, pool := range l.Pools {
				pools[pool] = l.Why
			}
		}
		unnamed = unnamed || h.unnamed
	}
	if n := t.book.Pending(); n > 0 && (unnamed || len(pools) == 0) {
		all = append(all, moreMayWait(n))
	}
	return all, pools
}
