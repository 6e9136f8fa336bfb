package asgstub

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// hook is a lifecycle hook of a group.
type hook struct {
	HookConfig
}

// total is how long an instance can wait for it in all.
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_LifecycleHook.html
func (h *hook) total() Seconds {
	n := min(maxHookWait, maxHookHeartbeats*h.HeartbeatTimeout)
	if h.GlobalTimeout > 0 {
		n = min(n, h.GlobalTimeout)
	}
	return n
}

// wait is one instance that waits for one hook.
type wait struct {
	hook   hook // as it was when the wait began
	token  string
	until  time.Time // the heartbeat's end
	limit  time.Time // the end whatever the heartbeats
	result string    // empty = it goes on
}

// maxHooks bounds the hooks of a group:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutLifecycleHook.html
const maxHooks = 50

// putHook adds or replaces a hook.
func (g *group) putHook(h HookConfig) {
	h.HeartbeatTimeout = cmp.Or(h.HeartbeatTimeout, defaultHeartbeat)
	h.DefaultResult = cmp.Or(h.DefaultResult, Abandon)
	at, found := slices.BinarySearchFunc(g.hooks, h.Name, func(o *hook, name string) int { return cmp.Compare(o.Name, name) })
	if found {
		g.hooks[at] = &hook{h}
		return
	}
	g.hooks = slices.Insert(g.hooks, at, &hook{h})
}

func (g *group) hook(name string) *hook {
	at := slices.IndexFunc(g.hooks, func(h *hook) bool { return h.Name == name })
	if at < 0 {
		return nil
	}
	return g.hooks[at]
}

// hold makes an instance wait for the hooks of a transition; false if there are none.
func (g *group) hold(in *instance, transition, state string) bool {
	in.waits = nil
	for _, h := range g.hooks {
		if h.Transition == transition {
			in.waits = append(in.waits, &wait{hook: *h, token: g.uuid()})
		}
	}
	if len(in.waits) == 0 {
		return false
	}
	in.toState(state)
	in.work.status, in.work.progress = statusMidLifecycle, 60
	now := g.c.mu.now
	for _, w := range in.waits {
		w.until = now.Add(w.hook.HeartbeatTimeout.Duration())
		w.limit = now.Add(w.hook.total().Duration())
		g.watch(in, w)
		g.c.hookEvent(in, w)
	}
	return true
}

// watch plans the end of a wait that nobody completes.
func (g *group) watch(in *instance, w *wait) {
	at := w.until
	if w.limit.Before(at) {
		at = w.limit
	}
	g.c.afterIn(in, at.Sub(g.c.mu.now), func() {
		if w.result != "" {
			return
		}
		if w.until.After(g.c.mu.now) && w.limit.After(g.c.mu.now) {
			g.watch(in, w) // there was a heartbeat
			return
		}
		g.complete(in, w, w.hook.DefaultResult)
	})
}

// heartbeat lets an instance wait for another heartbeat's time, from now on.
func (g *group) heartbeat(w *wait) {
	w.until = g.c.mu.now.Add(w.hook.HeartbeatTimeout.Duration())
}

// complete ends a wait. The instance goes on when the last one has ended, or one
// was abandoned, which ends the others too.
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/lifecycle-hooks-overview.html
func (g *group) complete(in *instance, w *wait, result string) {
	w.result = result
	abandoned := result == Abandon
	if !abandoned && slices.ContainsFunc(in.waits, func(o *wait) bool { return o.result == "" }) {
		return
	}
	in.waits = nil
	if in.state == TerminatingWait {
		in.toState(TerminatingProceed)
		in.work.status = statusInProgress
		g.shutDown(in)
		return
	}
	if !abandoned {
		in.toState(PendingProceed)
		g.inService(in)
		return
	}
	g.c.finish(in.work, statusCancelled)
	g.terminate(in, Abandoned, fmt.Sprintf(
		"At %s an instance was taken out of service in response to a lifecycle hook that was abandoned.", seconds(g.c.mu.now)))
	g.c.after(g.faults.retry(), func() { g.converge(Abandoned) }) // not in an endless loop at one time
}

// waitFor is the wait of an instance for a hook that has not ended; nil for none.
func (in *instance) waitFor(name, token string) *wait {
	for _, w := range in.waits {
		if w.hook.Name == name && w.result == "" && (token == "" || w.token == token) {
			return w
		}
	}
	return nil
}
