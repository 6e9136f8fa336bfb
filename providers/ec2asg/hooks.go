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
	// hooksAge is how old what is known of a group's hooks may be.
	hooksAge = 5 * time.Minute
	// hooksRetry is how soon a look asks again for hooks that it could not learn.
	hooksRetry = 30 * time.Second
	// heartbeatsPerLook bounds the calls of one look; who was left out is first at the next.
	heartbeatsPerLook = 50
	// waitLife is how long a wait is remembered that no look shows any more.
	waitLife = time.Hour
)

// The transitions that a hook can hold an instance in:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_LifecycleHook.html
const (
	launching   = "autoscaling:EC2_INSTANCE_LAUNCHING"
	terminating = "autoscaling:EC2_INSTANCE_TERMINATING"
)

// lifecycleHook is what matters of a hook.
type lifecycleHook struct {
	name       string
	transition string
	timeout    time.Duration // from heartbeat to heartbeat
	limit      time.Duration // of all heartbeats
}

// hooks keeps instances waiting that a hook holds for us, and lets them go. Nothing
// runs by itself: a heartbeat is sent when somebody looks at the group and it is due.
type hooks struct {
	session *session
	known   *rota[[]lifecycleHook]
	mu      struct {
		sync.Mutex
		waits  map[waitKey]*wait
		looked map[string]time.Time // groups
		pruned time.Time
	}
}

type waitKey struct{ group, instance, hook string }

// wait is one instance that waits for one hook.
type wait struct {
	since time.Time // when it was first seen waiting
	beat  time.Time // of the last heartbeat; zero = none yet
	seen  time.Time
	over  bool // nobody waits: it was completed or has run out
}

func newHooks(s *session) *hooks {
	h := &hooks{session: s, known: newRota[[]lifecycleHook](s.now)}
	h.mu.waits = map[waitKey]*wait{}
	h.mu.looked = map[string]time.Time{}
	return h
}

// waitsFor is the transition in which an instance is held; "" for none.
func waitsFor(in *types.Instance) string {
	switch lifecycleOf(in).hook {
	case pluginsdk.LaunchHook:
		return launching
	case pluginsdk.TerminationHook:
		return terminating
	case pluginsdk.NoHook:
	}
	return ""
}

// beat is a heartbeat that is due.
type beat struct {
	waitKey
	last time.Time
}

// keepAlive sends the heartbeats that are due for instances of groups. The longest
// overdue comes first. A failure is nothing to report: the next look tries again, and
// there is half of the timeout left.
func (h *hooks) keepAlive(ctx context.Context, groups []*types.AutoScalingGroup) {
	var due []beat
	for _, g := range groups {
		due = append(due, h.due(ctx, g)...)
	}
	slices.SortStableFunc(due, func(a, b beat) int { return a.last.Compare(b.last) })
	calls, refused := 0, map[string]bool{} // groups; the right may hang on a group's tag
	for _, b := range due {
		if refused[b.group] {
			continue
		}
		if calls++; calls > heartbeatsPerLook {
			return
		}
		_, err := send(ctx, h.session, h.session.scaling.RecordLifecycleActionHeartbeat, &autoscaling.RecordLifecycleActionHeartbeatInput{
			AutoScalingGroupName: aws.String(b.group), InstanceId: aws.String(b.instance), LifecycleHookName: aws.String(b.hook),
		})
		if errors.Is(err, pluginsdk.ErrThrottled) || ctx.Err() != nil {
			return
		}
		refused[b.group] = errors.Is(err, pluginsdk.ErrAuth)
		h.sent(b.waitKey, err)
	}
}

// due are the heartbeats of one group that can't wait until the next look.
func (h *hooks) due(ctx context.Context, g *types.AutoScalingGroup) (due []beat) {
	held := slices.ContainsFunc(g.Instances, func(in types.Instance) bool { return waitsFor(&in) != "" })
	name := aws.ToString(g.AutoScalingGroupName)
	gap := h.gap(name)
	if h.session.foreignOwner(g) != "" { // a heartbeat is a write
		return nil
	}
	if _, known := h.known.get(name); !held || !known && len(h.known.due([]string{name}, hooksRetry, 1)) == 0 {
		return nil
	}
	list, err := h.of(ctx, name)
	if err != nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.session.now()
	for i := range g.Instances {
		transition := waitsFor(&g.Instances[i])
		for _, hook := range list {
			if hook.transition != transition || !h.session.config.Hooks.mine(hook.name) {
				continue
			}
			key := waitKey{name, aws.ToString(g.Instances[i].InstanceId), hook.name}
			if w := h.wait(key, now); w.due(now, gap, hook, h.session.config.Hooks.DrainTimeout) {
				due = append(due, beat{key, w.beat})
			}
		}
	}
	return due
}

// gap is how long it was since the last look at a group: the next one will be as
// late again.
func (h *hooks) gap(name string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.session.now()
	last, ok := h.mu.looked[name]
	if now.Sub(h.mu.pruned) >= waitLife {
		h.mu.pruned = now
		for key, w := range h.mu.waits {
			if now.Sub(w.seen) >= waitLife {
				delete(h.mu.waits, key)
			}
		}
	}
	h.mu.looked[name] = now
	if !ok {
		return 0
	}
	return now.Sub(last)
}

// wait is the one of key. It needs h.mu.
func (h *hooks) wait(key waitKey, now time.Time) *wait {
	w := h.mu.waits[key]
	if w == nil {
		w = &wait{since: now}
		h.mu.waits[key] = w
	}
	w.seen = now
	return w
}

// due reports whether a heartbeat is to be sent now, so that there is never more than
// half of the timeout between two. When the wait began is not known: the first is
// sent at first sight.
func (w *wait) due(now time.Time, gap time.Duration, hook lifecycleHook, drain time.Duration) bool {
	if drain > 0 && now.Sub(w.since) >= drain {
		return false // it has had its time: the hook runs out, with the result that it says
	}
	return !w.over && (w.beat.IsZero() || now.Add(gap).Sub(w.beat) > hook.timeout/2)
}

func (h *hooks) sent(key waitKey, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.session.now()
	w := h.wait(key, now)
	switch {
	case err == nil:
		w.beat = now
	case says(err, textNoWait):
		w.over = true
	}
}

// over notes that nobody waits any more.
func (h *hooks) over(key waitKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wait(key, h.session.now()).over = true
}

// of returns the hooks of a group, as of five minutes ago, or what was known before
// if they can't be read.
func (h *hooks) of(ctx context.Context, group string) ([]lifecycleHook, error) {
	list, known := h.known.get(group)
	if known && len(h.known.due([]string{group}, hooksAge, 1)) == 0 {
		return list, nil
	}
	fresh, err := h.ask(ctx, group)
	if err != nil && known {
		return list, nil
	}
	return fresh, err
}

// ask asks for the hooks of a group.
func (h *hooks) ask(ctx context.Context, group string) ([]lifecycleHook, error) {
	out, err := send(ctx, h.session, h.session.scaling.DescribeLifecycleHooks, &autoscaling.DescribeLifecycleHooksInput{AutoScalingGroupName: aws.String(group)})
	if err != nil {
		h.known.tried(group)
		return nil, err
	}
	list := make([]lifecycleHook, 0, len(out.LifecycleHooks))
	for i := range out.LifecycleHooks {
		list = append(list, hookOf(&out.LifecycleHooks[i]))
	}
	h.known.learnt(group, list)
	return list, nil
}

func hookOf(l *types.LifecycleHook) lifecycleHook {
	hook := lifecycleHook{
		name: aws.ToString(l.LifecycleHookName), transition: aws.ToString(l.LifecycleTransition),
		timeout: time.Duration(aws.ToInt32(l.HeartbeatTimeout)) * time.Second,
		limit:   time.Duration(aws.ToInt32(l.GlobalTimeout)) * time.Second,
	}
	if hook.timeout <= 0 {
		hook.timeout = time.Hour // the API's default
	}
	if hook.limit <= 0 {
		hook.limit = longestWait(hook.timeout)
	}
	return hook
}
