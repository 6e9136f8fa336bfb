package local

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// crashWithin is how soon after its start an instance that ends by itself
	// counts as crashed: no agent that could connect is done that early.
	crashWithin = time.Second
	// firstCrashDelay doubles with each crash in a row up to maxCrashDelay, and is
	// added to the boot delay of the replacement.
	firstCrashDelay = time.Second
	maxCrashDelay   = time.Minute
	// maxFailures bounds the failures that Status tells of, newest last [entries].
	maxFailures = 20
)

// group is one group of instances. The provider's lock guards it.
type group struct {
	groupConfig
	desired   int
	instances map[string]*instance
	launched  int // ever; orders the instances
	crashes   int // in a row
	failures  []pluginsdk.GroupFailure
}

// instance is one process, from its launch until its last process is gone. The
// provider's lock guards state; orders go to its own goroutine.
type instance struct {
	id         string
	port       int // of 127.0.0.1; 0 = it has none
	number     int // in order of launch
	state      pluginsdk.InstanceState
	launchedAt time.Time
	orders     chan order
}

// order tells an instance to end.
type order struct {
	hurry bool          // its jobs are cut short
	grace time.Duration // until SIGKILL
}

// maxOrders is how many orders an instance can get: one to end, one to hurry.
const maxOrders = 2

// status is the group as a cloud would show it.
func (g *group) status() pluginsdk.GroupStatus {
	running := len(g.newestFirst(pluginsdk.StateRunning))
	return pluginsdk.GroupStatus{
		Group:        g.Name,
		Desired:      g.desired,
		Min:          g.Min,
		Max:          g.Max,
		InTransition: running != g.desired || len(g.instances) != running,
		Failures:     slices.Clone(g.failures),
	}
}

func (g *group) list() []pluginsdk.Instance {
	list := make([]pluginsdk.Instance, 0, len(g.instances))
	for _, in := range g.newestFirst("") {
		list = append(list, pluginsdk.Instance{ID: in.id, State: in.state, LaunchedAt: in.launchedAt, Zone: "local", Address: in.address()})
	}
	return list
}

// newestFirst returns the instances in a state; all, for "".
func (g *group) newestFirst(state pluginsdk.InstanceState) []*instance {
	var found []*instance
	for _, in := range g.instances {
		if state == "" || in.state == state {
			found = append(found, in)
		}
	}
	slices.SortFunc(found, func(a, b *instance) int { return cmp.Compare(b.number, a.number) })
	return found
}

// end orders an instance to end. One that was not started is gone at once.
func (g *group) end(in *instance, grace time.Duration) {
	if in.state == pluginsdk.StateCreating {
		delete(g.instances, in.id)
	}
	in.state = pluginsdk.StateDeleting
	in.orders <- order{grace: grace}
}

// hurry is end, also for an instance that is ending already.
func (in *instance) hurry(grace time.Duration) {
	in.state = pluginsdk.StateDeleting
	in.orders <- order{hurry: true, grace: grace}
}

// converge launches what is missing, after delay, and ends what is too much: first
// what was not started, then the newest. The lock is held.
func (p *Provider) converge(g *group, delay time.Duration) {
	alive := slices.Concat(g.newestFirst(pluginsdk.StateCreating), g.newestFirst(pluginsdk.StateRunning))
	for range max(0, g.desired-len(alive)) {
		p.launch(g, p.mu.config.BootDelay+delay)
	}
	for _, in := range alive[:max(0, len(alive)-g.desired)] {
		g.end(in, p.mu.config.StopGrace)
	}
}

// launch adds an instance that will start after delay. The lock is held.
func (p *Provider) launch(g *group, delay time.Duration) {
	g.launched++
	in := &instance{
		id:         g.Name + "-" + strings.ToLower(rand.Text()[:12]), // never given twice, also not by another plugin
		number:     g.launched,
		state:      pluginsdk.StateCreating,
		launchedAt: time.Now(),
		orders:     make(chan order, maxOrders),
	}
	g.instances[in.id] = in
	p.instances.Go(func() { p.live(g, in, delay) })
}

// live is the whole life of an instance. It owns the process.
func (p *Provider) live(g *group, in *instance, delay time.Duration) {
	boot := time.NewTimer(delay)
	defer boot.Stop()
	select {
	case <-in.orders:
		return
	case <-boot.C:
	}
	spec, ok, err := p.starts(g, in)
	if !ok {
		return
	}
	started := time.Now()
	if err == nil {
		err = run(spec, in.orders)
	}
	p.ended(g, in, time.Since(started), err)
}

// starts makes a creating instance a running one. From here on it can't be
// withdrawn.
func (p *Provider) starts(g *group, in *instance) (spec processSpec, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if in.state != pluginsdk.StateCreating {
		return processSpec{}, false, nil
	}
	in.state = pluginsdk.StateRunning
	if asksForPort(g.Command) {
		if in.port, err = p.freePort(); err != nil {
			return processSpec{}, true, err
		}
	}
	return p.mu.config.process(g, in.id, in.port), true, nil
}

// ended takes an instance whose processes are gone out of the group, and replaces
// it if nobody wanted it to end.
func (p *Provider) ended(g *group, in *instance, after time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(g.instances, in.id)
	if p.mu.closed || in.state == pluginsdk.StateDeleting {
		return
	}
	if after >= crashWithin {
		g.crashes = 0
		p.converge(g, 0)
		return
	}
	g.fail(in, err)
	delay := crashDelay(g.crashes)
	g.crashes++
	p.converge(g, delay)
}

// crashDelay is the extra wait after so many crashes in a row before this one.
func crashDelay(before int) time.Duration {
	return min(firstCrashDelay<<min(before, 10), maxCrashDelay)
}

// fail keeps the crash for Status.
func (g *group) fail(in *instance, err error) {
	if len(g.failures) == maxFailures {
		g.failures = slices.Delete(g.failures, 0, 1)
	}
	reason := "exit status 0"
	if err != nil {
		reason = err.Error()
	}
	g.failures = append(g.failures, pluginsdk.GroupFailure{
		ID:      in.id,
		Kind:    pluginsdk.KindTransient,
		Message: fmt.Sprintf("the instance ended right after its start: %s", reason),
		At:      time.Now(),
	})
}
