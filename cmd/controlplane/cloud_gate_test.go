package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/internal/asgstub"
)

// Operations of the service that the tests speak of.
const (
	setDesired   = "SetDesiredCapacity"
	terminate    = "TerminateInstanceInAutoScalingGroup"
	completeHook = "CompleteLifecycleAction"
	keepHook     = "RecordLifecycleActionHeartbeat"
	protect      = "SetInstanceProtection"
	describe     = "DescribeAutoScalingGroups"
)

// arrival is a call that changes something, as it comes in: before it is carried out.
type arrival struct {
	op      string
	who     string // access key id
	args    url.Values
	group   asgstub.GroupView // as it was
	working int               // jobs that run on the instance that is named
	looks   int               // calls of DescribeAutoScalingGroups until then
}

func (a arrival) instance() string { return a.args.Get("InstanceId") }

// target is what a SetDesiredCapacity asks for.
func (a arrival) target() int {
	n, _ := strconv.Atoi(a.args.Get("DesiredCapacity"))
	return n
}

func (a arrival) raises() bool { return a.op == setDesired && a.target() > a.group.Desired }
func (a arrival) lowers() bool { return a.op == setDesired && a.target() < a.group.Desired }

// raisesTo is for jobs that come one by one: the first raise may be for some of them.
func raisesTo(n int) func(arrival) bool {
	return func(a arrival) bool { return a.raises() && a.target() == n }
}

// fate is what becomes of a call that was caught.
type fate string

const (
	carriedOut fate = "carried out" // and nobody hears of it
	lost       fate = "lost"        // on its way
)

// trap catches one call.
type trap struct {
	is     func(arrival) bool
	caught chan arrival
	fate   chan fate // tells what becomes of it
	over   chan struct{}
}

func newTrap(is func(arrival) bool) *trap {
	return &trap{is: is, caught: make(chan arrival, 1), fate: make(chan fate, 1), over: make(chan struct{})}
}

// latency is how long the cloud takes to answer. An answer that comes before the
// client's own goroutine has noticed that its request is sent makes net/http close the
// connection, now and then: the SDK has closed the request's body by then. No cloud is
// that fast.
const latency = 2 * time.Millisecond

// gate is in front of the cloud: it sees every write come in, and can catch one.
type gate struct {
	cloud   *asgstub.Cloud
	group   string
	working func(instance string) int
	over    <-chan struct{} // closed when the test ends: nobody decides on what was caught

	mu struct {
		sync.Mutex
		arrivals []arrival
		trap     *trap
	}
}

func (g *gate) arrivals() []arrival {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.mu.arrivals)
}

func (g *gate) set(t *trap) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.trap = t
}

// ServeHTTP implements [http.Handler].
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	<-time.After(latency)
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, err := url.ParseQuery(string(body))
	// What nobody has signed is of no control plane here: another test's may still ask what
	// was at this port before.
	if err != nil || r.Header.Get("Authorization") == "" || strings.HasPrefix(form.Get("Action"), "Describe") {
		g.cloud.ServeHTTP(w, r)
		return
	}
	t := g.note(r, form)
	if t == nil {
		g.cloud.ServeHTTP(w, r)
		return
	}
	defer close(t.over)
	what := lost
	select {
	case what = <-t.fate:
	case <-g.over:
	}
	if what == lost {
		panic(http.ErrAbortHandler)
	}
	g.cloud.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
}

// note logs a call, and returns the trap that it is caught in.
func (g *gate) note(r *http.Request, form url.Values) *trap {
	a := arrival{op: form.Get("Action"), args: form}
	_, scope, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	a.who, _, _ = strings.Cut(scope, "/")
	a.group, _ = g.cloud.Group(g.group)
	a.looks = g.cloud.CountOf(describe)
	if id := a.instance(); id != "" {
		a.working = g.working(id)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.arrivals = append(g.mu.arrivals, a)
	t := g.mu.trap
	if t == nil || !t.is(a) {
		return nil
	}
	g.mu.trap = nil
	t.caught <- a
	return t
}
