package ec2asg

import (
	"cmp"
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
	// activityCallsPerLook bounds the calls of one look. With more groups in trouble
	// each has its turn: the longest unasked first.
	activityCallsPerLook = 20
	// growthWatch is how long after a group was asked to grow its activities are looked
	// at, unless everything has come before.
	growthWatch = 15 * time.Minute
	// failureLife is how long a failure is told. It must be told at every look as long
	// as it could matter, or it would be counted twice.
	failureLife = 15 * time.Minute
	// maxFailures bounds the failures of one group, the newest [failures].
	maxFailures = 20
	// activitiesPerPage is the most that AWS gives at once, the newest first.
	activitiesPerPage = 100
	maxActivityPages  = 3
	// hangPause is how long activities are left alone that were not told in time.
	hangPause = 30 * time.Second
)

// activities are the failures of what groups had accepted. A group that is asked for
// more says yes, tries, and writes what came of it into its scaling activities; so
// that is where it is looked for, and only while something is missing.
type activities struct {
	now      func() time.Time
	describe func(ctx context.Context, group string, since time.Time) ([]types.Activity, error)
	turns    *rota[struct{}]
	mu       struct {
		sync.Mutex
		groups map[string]*growth
		silent time.Time // AWS is not asked before
		denied error     // we may not ask; nil if we may, or do not know
	}
}

// growth is what is known of one group's growing.
type growth struct {
	asked    time.Time // when it was last asked for more
	lowered  time.Time // when we last asked for less
	settled  bool      // all that was asked for has come
	failures []pluginsdk.GroupFailure
}

func newActivities(now func() time.Time, describe func(context.Context, string, time.Time) ([]types.Activity, error)) *activities {
	a := &activities{now: now, describe: describe, turns: newRota[struct{}](now)}
	a.mu.groups = map[string]*growth{}
	return a
}

func (a *activities) growth(name string) *growth {
	g := a.mu.groups[name]
	if g == nil {
		g = &growth{}
		a.mu.groups[name] = g
	}
	return g
}

// asked notes that a group was asked for more.
func (a *activities) asked(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.growth(name)
	g.asked, g.settled = a.now(), false
}

// lowered notes that a group was asked for less: launches that it cancels for that
// have not failed.
func (a *activities) lowered(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.growth(name).lowered = a.now()
}

// failures are those of a group that could still matter, the oldest first.
func (a *activities) failures(name string) []pluginsdk.GroupFailure {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.growth(name)
	now := a.now()
	g.failures = slices.DeleteFunc(g.failures, func(f pluginsdk.GroupFailure) bool { return now.Sub(f.At) >= failureLife })
	return slices.Clone(g.failures)
}

// look asks about groups from which something is missing.
func (a *activities) look(ctx context.Context, groups []*types.AutoScalingGroup) {
	for _, name := range a.turns.due(a.suspects(groups), 0, activityCallsPerLook) {
		since := a.now().Add(-failureLife)
		list, err := a.describe(ctx, name, since)
		a.turns.tried(name)
		if err != nil {
			a.failed(ctx, err)
			return
		}
		a.keep(name, list, since)
	}
}

// suspects are the groups that lack something, or did when they were last asked for
// more.
func (a *activities) suspects(groups []*types.AutoScalingGroup) (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for _, group := range groups {
		name := aws.ToString(group.AutoScalingGroupName)
		g := a.growth(name)
		missing := existing(group) < desired(group)
		if !missing && !inTransition(group) {
			g.settled = true
		}
		if missing || !g.settled && !g.asked.IsZero() && now.Sub(g.asked) < growthWatch {
			names = append(names, name)
		}
	}
	if now.Before(a.mu.silent) {
		return nil
	}
	return names
}

// failed notes why nothing could be learnt. What hangs is left alone for a while, or
// every look would take that long.
func (a *activities) failed(ctx context.Context, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case denied(err):
		a.mu.denied, a.mu.silent = err, a.now().Add(deniedAge)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		a.mu.silent = a.now().Add(hangPause)
	}
}

// deniedErr is the error if we may not ask.
func (a *activities) deniedErr() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.denied
}

// keep adds the failures among activities that are not known yet.
func (a *activities) keep(name string, list []types.Activity, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.denied = nil
	g := a.growth(name)
	for i := range list {
		f, ok := failureOf(&list[i])
		ours := list[i].StatusCode == types.ScalingActivityStatusCodeCancelled && !aws.ToTime(list[i].StartTime).After(g.lowered)
		known := slices.ContainsFunc(g.failures, func(k pluginsdk.GroupFailure) bool { return k.ID == f.ID })
		if ok && !ours && !known && f.At.After(since) {
			g.failures = append(g.failures, f)
		}
	}
	slices.SortStableFunc(g.failures, func(x, y pluginsdk.GroupFailure) int {
		return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.ID, y.ID))
	})
	g.failures = g.failures[max(0, len(g.failures)-maxFailures):]
}

// describeActivities reads a group's activities that began since then, the newest
// first, as far as maxActivityPages goes.
func (s *session) describeActivities(ctx context.Context, group string, since time.Time) ([]types.Activity, error) {
	var list []types.Activity
	in := &autoscaling.DescribeScalingActivitiesInput{AutoScalingGroupName: aws.String(group), MaxRecords: aws.Int32(activitiesPerPage)}
	for range maxActivityPages {
		out, err := send(ctx, s, s.scaling.DescribeScalingActivities, in)
		if err != nil {
			return nil, err
		}
		list = append(list, out.Activities...)
		n := len(out.Activities)
		if aws.ToString(out.NextToken) == "" || n > 0 && aws.ToTime(out.Activities[n-1].StartTime).Before(since) {
			break
		}
		in.NextToken = out.NextToken
	}
	return list, nil
}
