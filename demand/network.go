package demand

import (
	"math/bits"
	"slices"
)

// network is the residual network between groups of classes and pools. Edges
// from a group to a pool have no limit of their own; a group is limited by its
// waiting jobs, a pool by its places.
//
// At any time at most one pool has room that a waiting job could reach (the one
// whose places were added last), so paths are searched backwards from it.
type network struct {
	*eligibility
	orders  [numberOfOrder][]int // class entries, those to be served first in front
	orderOf []order              // of each pool
	pending []int                // jobs of each class entry
	left    []int                // jobs of each class entry that are not placed yet
	waiting int                  // sum of left over the classes that have a group
	room    []int                // of each pool: places without a job
	placed  [][]edge             // of each group: its jobs per pool, only entries > 0

	// sealed pools are those that no waiting job can reach, not even by moving
	// others. That never changes back: augmenting moves jobs only among pools that
	// waiting jobs do reach.
	sealed []bool
	search search
}

// order says in which order a pool serves class entries.
type order int

const (
	byUrgency     order = iota // Class.Less
	byShare                    // Class.compareFairly
	numberOfOrder = iota
)

// edge is jobs of a group (or into a pool) at the other end.
type edge struct {
	group, pool int
	jobs        int
}

// search is the reusable memory of one backward search.
type search struct {
	groups   bits64 // reached
	pools    []bool // reached
	expanded []bool // capabilities whose groups were all reached
	hop      []int  // of a reached group: the pool that it would push into
	donor    []int  // of a reached pool: the group that would give up a place there
	queue    []int  // pools reached, in order
}

func newNetwork(e *eligibility, classes []Class, supplies []Supply) *network {
	pools := len(e.capabilityOf)
	n := &network{
		eligibility: e,
		orderOf:     make([]order, pools),
		pending:     make([]int, len(classes)),
		left:        make([]int, len(classes)),
		room:        make([]int, pools),
		placed:      make([][]edge, e.groups),
		sealed:      make([]bool, pools),
		search: search{
			groups:   newBits(e.groups),
			pools:    make([]bool, pools),
			expanded: make([]bool, len(e.firstPool)),
			hop:      make([]int, e.groups),
			donor:    make([]int, pools),
		},
	}
	n.putInOrder(classes, supplies)
	for i := range classes {
		n.pending[i] = max(0, classes[i].Pending)
		n.left[i] = n.pending[i]
		if e.groupOf[i] != noGroup {
			n.waiting += n.left[i]
		}
	}
	return n
}

// putInOrder fills orders and orderOf. Without shares both orders are one.
func (n *network) putInOrder(classes []Class, supplies []Supply) {
	urgency := inOrderOf(classes, (*Class).compare)
	n.orders = [numberOfOrder][]int{byUrgency: urgency, byShare: urgency}
	shared := slices.ContainsFunc(classes, func(c Class) bool { return c.Share > 0 })
	fair := slices.ContainsFunc(supplies, func(s Supply) bool { return s.Fair })
	if !shared || !fair {
		return
	}
	n.orders[byShare] = inOrderOf(classes, (*Class).compareFairly)
	for p := range supplies {
		if supplies[p].Fair {
			n.orderOf[p] = byShare
		}
	}
}

// addPlaces gives pool p more places and fills them as far as possible.
func (n *network) addPlaces(p, jobs int) {
	n.room[p] += jobs
	for n.room[p] > 0 && n.waiting > 0 && !n.sealed[p] {
		n.reach(p)
		if !n.push(p) {
			n.seal()
		}
	}
}

// reach finds every group that can get a job into pool p, directly or by moving
// jobs of other groups along.
func (n *network) reach(p int) {
	s := &n.search
	clear(s.groups)
	clear(s.pools)
	clear(s.expanded)
	s.queue = append(s.queue[:0], p)
	s.pools[p] = true
	for i := 0; i < len(s.queue); i++ {
		q := s.queue[i]
		k := n.capabilityOf[q]
		if s.expanded[k] {
			continue
		}
		s.expanded[k] = true
		for w, word := range n.takes[k] {
			for fresh := word &^ s.groups[w]; fresh != 0; fresh &= fresh - 1 {
				n.reachGroup(w*64+bits.TrailingZeros64(fresh), q)
			}
			s.groups[w] |= word
		}
	}
}

// reachGroup notes that group g can push into pool q, and so can whoever could
// take one of g's places.
func (n *network) reachGroup(g, q int) {
	s := &n.search
	s.hop[g] = q
	for _, e := range n.placed[g] {
		if !s.pools[e.pool] && !n.sealed[e.pool] {
			s.pools[e.pool] = true
			s.donor[e.pool] = g
			s.queue = append(s.queue, e.pool)
		}
	}
}

// push places waiting jobs of reached groups, most urgent first, until pool p is
// full or a path has dried up, after which the search must be repeated. It
// reports whether it placed any.
func (n *network) push(p int) bool {
	pushed := false
	for _, c := range n.orders[n.orderOf[p]] {
		g := n.groupOf[c]
		if n.left[c] == 0 || g == noGroup || !n.search.groups.has(g) {
			continue
		}
		jobs, dry := n.augment(g, p, min(n.left[c], n.room[p]))
		n.left[c] -= jobs
		n.waiting -= jobs
		n.room[p] -= jobs
		pushed = true
		if dry || n.room[p] == 0 {
			break
		}
	}
	return pushed
}

// augment pushes at most jobs along g's path to p and returns how many. dry
// reports that a group on the path has no more jobs to move.
func (n *network) augment(g, p, jobs int) (pushed int, dry bool) {
	s := &n.search
	for q := s.hop[g]; q != p; q = s.hop[s.donor[q]] {
		jobs = min(jobs, n.jobsAt(s.donor[q], q))
	}
	for {
		q := s.hop[g]
		n.move(g, q, jobs)
		if q == p {
			return jobs, dry
		}
		g = s.donor[q]
		dry = n.move(g, q, -jobs) == 0 || dry
	}
}

func (n *network) jobsAt(g, p int) int {
	for _, e := range n.placed[g] {
		if e.pool == p {
			return e.jobs
		}
	}
	return 0
}

// move changes the jobs of group g in pool p by delta and returns what is there
// then.
func (n *network) move(g, p, delta int) int {
	list := n.placed[g]
	for i := len(list) - 1; i >= 0; i-- { // the pool in hand is mostly the last
		if list[i].pool != p {
			continue
		}
		list[i].jobs += delta
		jobs := list[i].jobs
		if jobs == 0 {
			n.placed[g] = append(list[:i], list[i+1:]...)
		}
		return jobs
	}
	n.placed[g] = append(list, edge{group: g, pool: p, jobs: delta})
	return delta
}

// seal marks every pool that the last search reached: since no waiting job
// reaches the pool that the search began at, none reaches these.
func (n *network) seal() {
	for _, q := range n.search.queue {
		n.sealed[q] = true
	}
}

// inflow returns the jobs into each pool, by group.
func (n *network) inflow() [][]edge {
	in := make([][]edge, len(n.room))
	for _, list := range n.placed {
		for _, e := range list {
			in[e.pool] = append(in[e.pool], e)
		}
	}
	return in
}

func total(edges []edge) int {
	sum := 0
	for _, e := range edges {
		sum += e.jobs
	}
	return sum
}

// classQueues hands out the placed jobs of each group, by either order.
type classQueues struct {
	rank    [numberOfOrder][]int   // of each class entry
	members [numberOfOrder][][]int // of each group: its class entries with placed jobs, those to be served first in front
	jobs    []int                  // of each class entry: placed and not handed out yet
}

func (n *network) classQueues() *classQueues {
	q := &classQueues{jobs: make([]int, len(n.left))}
	for c := range n.left {
		q.jobs[c] = n.pending[c] - n.left[c]
	}
	for o := range order(numberOfOrder) {
		if o == byShare && !slices.Contains(n.orderOf, byShare) {
			break
		}
		q.rank[o] = make([]int, len(n.left))
		q.members[o] = make([][]int, n.groups)
		for rank, c := range n.orders[o] {
			q.rank[o][c] = rank
			if q.jobs[c] > 0 {
				g := n.groupOf[c]
				q.members[o][g] = append(q.members[o][g], c)
			}
		}
	}
	return q
}

// head returns the class entry of a group that is served first. The group must have
// one.
func (q *classQueues) head(o order, g int) int {
	list := q.members[o][g]
	for q.jobs[list[0]] == 0 { // handed out, in the other order maybe
		list = list[1:]
	}
	q.members[o][g] = list
	return list[0]
}

// mostUrgent returns the edge with jobs whose group has the class entry at its head
// that is served first. There must be one.
func (q *classQueues) mostUrgent(o order, edges []edge) *edge {
	var best *edge
	least := 0
	for i := range edges {
		e := &edges[i]
		if e.jobs == 0 {
			continue
		}
		if rank := q.rank[o][q.head(o, e.group)]; best == nil || rank < least {
			best, least = e, rank
		}
	}
	return best
}

// take hands out at most jobs of the class entry at the head of group g.
func (q *classQueues) take(o order, g, jobs int) (class, taken int) {
	class = q.head(o, g)
	taken = min(jobs, q.jobs[class])
	q.jobs[class] -= taken
	return class, taken
}
