package route

import (
	"cmp"
	"slices"

	"github.com/spillway-ci/spillway"
)

// Rival is a pool that takes the same jobs as another one, and the runner token that
// serves it.
type Rival struct {
	Pool  spillway.Pool
	Token string // hash
}

// Rivals returns the other pools that take the same jobs as this one, the first by
// priority first. To GitLab each token is a runner of its own, and a job goes to
// whichever asks for it.
func (t *Tokens) Rivals(pool string) []Rival {
	var rivals []Rival
	for _, r := range t.bound.Load().alike[pool] {
		if r.Pool.Name != pool {
			rivals = append(rivals, r)
		}
	}
	return rivals
}

// Contested returns the pools that have a rival with another token.
func (t *Tokens) Contested() []Rival { return t.bound.Load().contested }

// Groups returns the pools that take the same jobs, where there are several, each group
// the first by priority first.
func (t *Tokens) Groups() [][]Rival { return t.bound.Load().groups }

// group puts pools together by what they take. Of GitLab's jobs that has no resources,
// and is not known of a pool until GitLab has told: such a pool is nobody's rival.
func (b *bindings) group() {
	groups := map[spillway.Fingerprint][]Rival{}
	for hash, served := range b.byHash {
		for _, p := range served.Pools {
			if c := p.Capability; len(c.Tags) > 0 || c.RunUntagged {
				c.Resources = spillway.Resources{}
				groups[c.Fingerprint()] = append(groups[c.Fingerprint()], Rival{Pool: p, Token: hash})
			}
		}
	}
	for _, group := range groups {
		if len(group) == 1 {
			continue
		}
		slices.SortFunc(group, func(a, b Rival) int {
			return cmp.Or(cmp.Compare(a.Pool.Priority, b.Pool.Priority), cmp.Compare(a.Pool.Name, b.Pool.Name))
		})
		b.groups = append(b.groups, group)
		for _, r := range group {
			b.alike[r.Pool.Name] = group
		}
		if slices.ContainsFunc(group, func(r Rival) bool { return r.Token != group[0].Token }) {
			b.contested = append(b.contested, group...)
		}
	}
	slices.SortFunc(b.contested, func(x, y Rival) int { return cmp.Compare(x.Pool.Name, y.Pool.Name) })
}
