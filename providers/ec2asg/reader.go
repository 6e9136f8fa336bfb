package ec2asg

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// namesPerCall is how many groups one call asks for: the most that AWS takes, and
	// the most that it answers in one page.
	// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DescribeAutoScalingGroups.html
	namesPerCall = 100
	// maxPages bounds the pages of one call: a page has a group at least, so more
	// means an endpoint that hands out tokens without end.
	maxPages = namesPerCall + 1
	// maxReadAge is how old a read may be that is used again. Long enough that a look
	// at a pool (status, then instances) is one call, short enough that nobody could
	// tell the difference.
	maxReadAge = time.Second
)

// reader reads groups for the whole process, and remembers what it read last. With
// a thousand groups on one account a call for each would use up its budget: a call
// asks for a hundred.
type reader struct {
	now      func() time.Time
	describe func(ctx context.Context, names []string) (map[string]*types.AutoScalingGroup, error)
	// others names groups that somebody will ask for soon: they are read along.
	others func(most int) []string

	mu struct {
		sync.Mutex
		order  uint64 // counts what happens: the begins of reads and the ends of writes
		seen   map[string]*sighting
		flight *flight
		wanted map[string]int // groups that somebody waits for
	}
}

// sighting is the last read of one group.
type sighting struct {
	group   *types.AutoScalingGroup // nil = there is none
	begun   uint64                  // 0 = never read
	at      time.Time               // when the answer was complete
	wrote   uint64                  // the end of the last write of ours
	writing int                     // writes under way
}

// flight is a shared read under way.
type flight struct {
	names map[string]bool
	done  chan struct{}
	err   error // constant once done is closed; nil also if who flew it gave up
}

func newReader(now func() time.Time, describe func(context.Context, []string) (map[string]*types.AutoScalingGroup, error), others func(int) []string) *reader {
	r := &reader{now: now, describe: describe, others: others}
	r.mu.seen = map[string]*sighting{}
	r.mu.wanted = map[string]int{}
	return r
}

// answer is a group as it was read: nil without an error means that there is none.
type answer struct {
	group *types.AutoScalingGroup
	err   error
}

// read asks for groups now, whatever is remembered. A call that fails is the failure
// of its groups only: the others are read all the same.
func (r *reader) read(ctx context.Context, names []string) map[string]answer {
	answers := make(map[string]answer, len(names))
	begun := r.begin()
	for len(names) > 0 {
		some := names[:min(len(names), namesPerCall)]
		names = names[len(some):]
		found, err := r.describe(ctx, some)
		for _, name := range some {
			answers[name] = answer{found[name], err}
		}
	}
	r.remember(begun, answers)
	return answers
}

func (r *reader) begin() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.order++
	return r.mu.order
}

func (r *reader) remember(begun uint64, answers map[string]answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for name, a := range answers {
		s := r.sighting(name)
		if a.err != nil || begun < s.begun {
			continue
		}
		s.group, s.begun, s.at = a.group, begun, now
	}
}

// sighting is the one of a group. It needs r.mu.
func (r *reader) sighting(name string) *sighting {
	s := r.mu.seen[name]
	if s == nil {
		s = &sighting{}
		r.mu.seen[name] = s
	}
	return s
}

// recent returns what was read of a group if that is still good: no older than
// maxReadAge, and begun after every write of ours.
func (r *reader) recent(name string) (*types.AutoScalingGroup, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.good(name)
}

// good is recent; it needs r.mu.
func (r *reader) good(name string) (*types.AutoScalingGroup, bool) {
	s := r.sighting(name)
	if s.begun == 0 || s.writing > 0 || s.begun < s.wrote || r.now().Sub(s.at) >= maxReadAge {
		return nil, false
	}
	return s.group, true
}

// get returns a group, nil for none, as recent says or by a call. Who asks while a
// call is under way waits for it or shares the next one: a thousand askers make ten
// calls.
func (r *reader) get(ctx context.Context, name string) (*types.AutoScalingGroup, error) {
	r.want(name, 1)
	defer r.want(name, -1)
	for {
		group, ok, f, mine := r.join(name)
		switch {
		case ok:
			return group, nil
		case mine:
			return r.fly(ctx, f, name)
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, &pluginsdk.Error{Kind: pluginsdk.KindTransient, Message: "not read: " + ctx.Err().Error(), Cause: ctx.Err()}
		}
		if f.names[name] && f.err != nil {
			return nil, f.err
		}
	}
}

// want counts who waits for a group.
func (r *reader) want(name string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.wanted[name] += n; r.mu.wanted[name] <= 0 {
		delete(r.mu.wanted, name)
	}
}

// join answers from memory, begins a flight, or names the one to wait for.
func (r *reader) join(name string) (group *types.AutoScalingGroup, ok bool, f *flight, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if group, ok := r.good(name); ok {
		return group, true, nil, false
	}
	if r.mu.flight != nil {
		return nil, false, r.mu.flight, false
	}
	f = &flight{names: map[string]bool{name: true}, done: make(chan struct{})}
	board := func(other string) {
		if _, ok := r.good(other); !ok && len(f.names) < namesPerCall {
			f.names[other] = true
		}
	}
	for other := range r.mu.wanted {
		board(other)
	}
	for _, other := range r.others(namesPerCall) {
		board(other)
	}
	r.mu.flight = f
	return nil, false, f, true
}

// fly carries a shared read out. Should ctx end, the flight has no error: whoever
// waits for it begins another one, with a context of their own.
func (r *reader) fly(ctx context.Context, f *flight, name string) (*types.AutoScalingGroup, error) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mu.flight = nil
		close(f.done)
	}()
	a := r.read(ctx, slices.Sorted(maps.Keys(f.names)))[name]
	if ctx.Err() == nil {
		f.err = a.err
	}
	return a.group, a.err
}

// writing marks a group while something is written to it: what was read before says
// nothing of after. The result ends it.
func (r *reader) writing(name string) (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sighting(name)
	s.writing++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.writing--
		r.mu.order++
		s.wrote = r.mu.order
	}
}

// describe makes one call, with all its pages. A page that fails is a failure of the
// whole: a part would look like groups that are gone.
func (s *session) describe(ctx context.Context, names []string) (map[string]*types.AutoScalingGroup, error) {
	found := make(map[string]*types.AutoScalingGroup, len(names))
	in := &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: names, MaxRecords: aws.Int32(namesPerCall)}
	for range maxPages {
		out, err := send(ctx, s, s.scaling.DescribeAutoScalingGroups, in)
		if err != nil {
			return nil, err
		}
		for i := range out.AutoScalingGroups {
			found[aws.ToString(out.AutoScalingGroups[i].AutoScalingGroupName)] = &out.AutoScalingGroups[i]
		}
		if aws.ToString(out.NextToken) == "" {
			return found, nil
		}
		in.NextToken = out.NextToken
	}
	return nil, pluginsdk.Errorf(pluginsdk.KindTransient, "more than %d pages for %d groups", maxPages, len(names))
}
