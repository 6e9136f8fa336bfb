package ec2asg

import (
	"context"
	"errors"
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
	// crowdedReadAge is that for looks while writes wait for the call budget: as old as
	// the control plane is used to, for it looks every 5 seconds.
	crowdedReadAge = 5 * time.Second
)

// reader reads groups for the whole process, and remembers what it read last. With
// a thousand groups on one account a call for each would use up its budget: a call
// asks for a hundred, and what it has room for is read along.
type reader struct {
	now      func() time.Time
	describe func(ctx context.Context, names []string) (map[string]*types.AutoScalingGroup, error)
	all      []string // groups that somebody will ask for, sooner or later

	mu struct {
		sync.Mutex
		order uint64 // counts what happens: the begins of reads and the ends of writes
		seen  map[string]*sighting
	}
}

// sighting is the last read of one group.
type sighting struct {
	group   *types.AutoScalingGroup // nil = there is none
	begun   uint64                  // 0 = never read
	at      time.Time               // when the answer was complete
	wrote   uint64                  // the end of the last write of ours
	writing int                     // writes under way
	flight  *flight                 // the last one under way that reads it
	refused bool                    // the last call for it was invalid: it spoils no other
}

// flight is one call under way, for all who want one of its groups.
type flight struct {
	asked []string // by who flies it
	names []string // those, and who is taken along
	begun uint64
	done  chan struct{}
	// The outcome, constant once done is closed.
	found map[string]*types.AutoScalingGroup
	err   error
	ended bool // who flew it gave up: that is nobody else's failure
}

func (f *flight) answer(name string) answer { return answer{f.found[name], f.err} }

func newReader(now func() time.Time, describe func(context.Context, []string) (map[string]*types.AutoScalingGroup, error), all []string) *reader {
	r := &reader{now: now, describe: describe, all: all}
	r.mu.seen = map[string]*sighting{}
	return r
}

// answer is a group as it was read: nil without an error means that there is none.
type answer struct {
	group *types.AutoScalingGroup
	err   error
}

// along names groups to read along, the most welcome first, where a call has room.
type along func() []string

// read asks for groups now, whatever is remembered.
func (r *reader) read(ctx context.Context, names []string) map[string]answer {
	return r.get(ctx, names, 0, r.longestUnseen)
}

// get returns groups, no older than age or by calls. Who asks for one that a call
// under way will bring waits for that: a thousand askers make ten calls. A call that
// fails is the failure of its groups only: the others are read all the same.
func (r *reader) get(ctx context.Context, names []string, age time.Duration, more along) map[string]answer {
	answers := make(map[string]answer, len(names))
	for len(names) > 0 {
		mine, others := r.board(names, age, more, answers)
		for _, f := range mine {
			r.fly(ctx, f)
			for _, name := range f.asked {
				answers[name] = f.answer(name)
			}
		}
		names = names[:0:0]
		for name, f := range others {
			select {
			case <-f.done:
			case <-ctx.Done():
				answers[name] = answer{err: &pluginsdk.Error{Kind: pluginsdk.KindTransient, Message: "not read: " + ctx.Err().Error(), Cause: ctx.Err()}}
				continue
			}
			if r.stands(f, name) {
				answers[name] = f.answer(name)
			} else {
				names = append(names, name)
			}
		}
	}
	return answers
}

// board answers from memory, begins flights, and names those to wait for.
func (r *reader) board(names []string, age time.Duration, more along, answers map[string]answer) (mine []*flight, others map[string]*flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	others = map[string]*flight{}
	var missing []string
	for _, name := range names {
		s := r.sighting(name)
		switch {
		case r.good(s, age):
			answers[name] = answer{group: s.group}
		case age > 0 && s.boarded():
			others[name] = s.flight
		default:
			missing = append(missing, name)
		}
	}
	for some := range slices.Chunk(missing, namesPerCall) {
		mine = append(mine, r.begin(some))
	}
	if len(mine) > 0 {
		r.fill(mine[len(mine)-1], more())
	}
	return mine, others
}

// begin makes a flight. It needs r.mu.
func (r *reader) begin(names []string) *flight {
	r.mu.order++
	f := &flight{asked: names, names: slices.Clone(names), begun: r.mu.order, done: make(chan struct{})}
	for _, name := range names {
		r.sighting(name).flight = f
	}
	return f
}

// fill takes along whom there is room for: those that were not just read, and are
// not being read. It needs r.mu.
func (r *reader) fill(f *flight, names []string) {
	for _, name := range names {
		if len(f.names) >= namesPerCall {
			return
		}
		if s := r.sighting(name); !s.refused && !s.boarded() && !r.good(s, maxReadAge) {
			s.flight = f
			f.names = append(f.names, name)
		}
	}
}

// longestUnseen are all groups, those first of which nothing is known, and then by
// the age of that. It needs r.mu.
func (r *reader) longestUnseen() []string {
	since := func(name string) time.Time {
		if s := r.sighting(name); s.begun > s.wrote {
			return s.at
		}
		return time.Time{}
	}
	return slices.SortedStableFunc(slices.Values(r.all), func(a, b string) int { return since(a).Compare(since(b)) })
}

// fly makes the call. A group that is written to or read anew meanwhile is not
// remembered as it was.
func (r *reader) fly(ctx context.Context, f *flight) {
	slices.Sort(f.names)
	found, err := r.describe(ctx, f.names)
	r.mu.Lock()
	defer r.mu.Unlock()
	f.found, f.err, f.ended = found, err, err != nil && ctx.Err() != nil
	now := r.now()
	for _, name := range f.names {
		s := r.sighting(name)
		if s.flight == f {
			s.flight = nil
		}
		if !f.ended {
			s.refused = errors.Is(err, pluginsdk.ErrInvalid)
		}
		if err == nil && f.begun > s.begun {
			s.group, s.begun, s.at = found[name], f.begun, now
		}
	}
	close(f.done)
}

// stands reports whether what a flight has brought is an answer to who waited for it.
func (r *reader) stands(f *flight, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sighting(name)
	return !f.ended && s.writing == 0 && f.begun > s.wrote
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

// boarded reports whether a call is under way that tells of the group after the last
// write of ours. It needs the reader's lock.
func (s *sighting) boarded() bool {
	return s.flight != nil && s.writing == 0 && s.flight.begun > s.wrote
}

// recent returns what was read of a group if that is still good for a write.
func (r *reader) recent(name string) (*types.AutoScalingGroup, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sighting(name)
	return s.group, r.good(s, maxReadAge)
}

// has reports whether what was read of all these groups is good.
func (r *reader) has(names []string, age time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool { return !r.good(r.sighting(name), age) })
}

// good reports whether what was read is younger than age, and of after every write
// of ours. It needs r.mu.
func (r *reader) good(s *sighting, age time.Duration) bool {
	return s.begun != 0 && s.writing == 0 && s.begun > s.wrote && r.now().Sub(s.at) < age
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
