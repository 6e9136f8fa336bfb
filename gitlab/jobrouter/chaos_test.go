package jobrouter

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
)

var (
	chaosSeed = flag.Uint64("chaos.seed", 0, "seed of the chaos; 0 = a new one")
	chaosFor  = flag.Duration("chaos.for", 4*time.Second, "how long faults are made")
)

// chaos is three replicas, machines that come and go, and everything that can go wrong.
type chaos struct {
	t    *testing.T
	crew *crew
	ctx  context.Context
	quit chan struct{} // closed when faults are over

	pauses pauses

	mu struct {
		sync.Mutex
		dice      *rand.Rand
		replicas  []*served
		ran       map[int64]spillway.MachineID
		cancelled map[spillway.MachineID]int
		logs      []*record
		problems  []string
		next      int
	}
}

func (c *chaos) roll(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.dice.IntN(n)
}

func (c *chaos) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.problems = append(c.mu.problems, fmt.Sprintf(format, args...))
}

// pauses notices when this process did not run: a question that was on its way meanwhile
// arrives late, by no fault of who asked it.
type pauses struct {
	mu   sync.Mutex
	last time.Time // when it surely ran
	end  time.Time // of the last pause
}

// notable is a pause that matters: much less than leaseMargin.
const notable = leaseMargin / 4

func (p *pauses) look(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.last) > notable && !p.last.IsZero() {
		p.end = now
	}
	p.last = now
}

// since reports whether a pause has ended since then.
func (p *pauses) since(at time.Time) bool {
	p.look(time.Now())
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end.After(at)
}

func (p *pauses) run(ctx context.Context) {
	ticks := time.NewTicker(notable / 20)
	defer ticks.Stop()
	for ctx.Err() == nil {
		p.look(time.Now())
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
}

// asksWithinItsLease: a question arrives before the lease of who asks has ended.
func (c *chaos) asksWithinItsLease(q asked) {
	name := leaseName(testTokens().Hashes()[0])
	holder := c.crew.leases.holder(name)
	if !strings.HasPrefix(holder, q.replica+"@") && !c.pauses.since(q.at.Add(-2*leaseMargin)) {
		c.problem("%s asks while %q has the lease", q.replica, holder)
	}
}

// over waits a while, and reports whether faults are over.
func (c *chaos) over(most time.Duration) bool {
	select {
	case <-c.quit:
		return true
	case <-time.After(time.Duration(1+c.roll(int(most.Milliseconds()))) * time.Millisecond):
		return false
	}
}

func (c *chaos) replica() *served {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.replicas[c.mu.dice.IntN(len(c.mu.replicas))]
}

func (c *chaos) addReplica() {
	c.mu.Lock()
	name := fmt.Sprintf("r%d", c.mu.next)
	c.mu.next++
	c.mu.Unlock()
	s := c.crew.join(name, func(o *Options, _ *stand) {
		o.LeaseTTL, o.RenewEvery = leaseMargin+300*time.Millisecond, 100*time.Millisecond
		o.LongPoll, o.HoldPerToken = time.Second, 2
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.replicas = append(c.mu.replicas, s)
	c.mu.logs = append(c.mu.logs, s.log)
}

// machine asks for jobs and runs them, with calls that are cancelled at any moment.
func (c *chaos) machine(id spillway.MachineID) {
	for c.ctx.Err() == nil {
		conn := c.replica().connect("grpc", testToken)
		for range 5 {
			c.question(id, func(ctx context.Context) reply {
				return getJob(ctx, conn, requestBody(string(id), "", runnerFeatures()))
			})
		}
		_ = conn.Close() // t.Cleanup closes it again, which is no harm
	}
}

func (c *chaos) question(id spillway.MachineID, ask func(context.Context) reply) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stops := false
	select {
	case <-c.quit:
	default:
		if stops = c.roll(3) == 0; stops {
			time.AfterFunc(time.Duration(c.roll(150))*time.Millisecond, cancel)
		}
	}
	r := ask(ctx)
	switch code := status.Code(r.err); {
	case code == codes.OK && len(r.body) > 0:
		c.run(id, r.body)
	case code == codes.OK:
	case stops && code == codes.Canceled:
		c.mu.Lock()
		c.mu.cancelled[id]++
		c.mu.Unlock()
	case c.ctx.Err() != nil:
	case code == codes.Unavailable, code == codes.Unimplemented:
		c.over(20 * time.Millisecond) // it asks GitLab, or another replica
	default:
		c.problem("machine %s was told %v", id, r.err)
	}
}

func (c *chaos) run(id spillway.MachineID, body []byte) {
	job := idOf(answer{body: body})
	if string(body) != string(jobBody(job)) {
		c.problem("job %d came changed", job)
	}
	if on, ok := c.crew.book.has(job); !ok || on != id {
		c.problem("job %d runs on %s, and the book says %q", job, id, on)
	}
	if err := c.crew.gitlab.run(job); err != nil {
		c.problem("job %d was given twice, to %s at last: %v", job, id, err)
	}
	c.mu.Lock()
	c.mu.ran[job] = id
	c.mu.Unlock()
	c.over(20 * time.Millisecond)
}

// faults are the actors that make things go wrong, each until it is over.
func (c *chaos) faults() []func() {
	return []func(){
		func() { // machines are ordered to drain, and taken back
			for !c.over(40 * time.Millisecond) {
				c.crew.book.order(machineName(c.roll(8)), c.roll(2) == 0)
			}
		},
		func() { // the store fails, before or after it has done what it was asked
			for !c.over(400 * time.Millisecond) {
				c.crew.book.failWith(func(verb string) error {
					if c.roll(2) == 0 {
						return errAway
					}
					return nil
				})
				c.over(150 * time.Millisecond)
				c.crew.book.failWith(nil)
			}
		},
		func() { // GitLab is ill
			for !c.over(500 * time.Millisecond) {
				c.crew.gitlab.answerWith(func(asked) (gitlab.JobAnswer, error) {
					return gitlab.JobAnswer{Status: []int{0, 0, 409, 500, 204}[c.roll(5)]}, nil
				})
				c.crew.gitlab.keepWith(func(int64) error {
					return []error{nil, gitlab.ErrUnavailable}[c.roll(2)]
				})
				c.over(200 * time.Millisecond)
				c.crew.gitlab.answerWith(nil)
				c.crew.gitlab.keepWith(nil)
			}
		},
		func() { // leases are lost
			for !c.over(300 * time.Millisecond) {
				victim := c.replica().desk.opt.holder()
				c.crew.leases.failFor(func(holder string) bool { return holder == victim })
				c.over(4 * time.Second)
				c.crew.leases.failFor(nil)
			}
		},
		func() { // replicas are replaced, in an orderly way
			for !c.over(2 * time.Second) {
				c.addReplica()
				c.mu.Lock()
				old := c.mu.replicas[0]
				c.mu.replicas = slices.Delete(c.mu.replicas, 0, 1)
				c.mu.Unlock()
				if err := old.desk.Drain(c.ctx); err != nil && c.ctx.Err() == nil {
					c.problem("drain: %v", err)
				}
				old.server.GracefulStop()
				old.stop()
			}
		},
	}
}

func machineName(i int) spillway.MachineID { return spillway.MachineID(fmt.Sprintf("m%d", i)) }

func TestChaosNoJobIsGivenTwiceLostOrSentToACordonedMachine(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-chaos.seed=%d", seed)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &chaos{t: t, crew: newCrew(t), ctx: ctx, quit: make(chan struct{})}
	c.mu.dice = rand.New(rand.NewPCG(seed, 1))
	c.mu.ran, c.mu.cancelled = map[int64]spillway.MachineID{}, map[spillway.MachineID]int{}
	c.crew.gitlab.mu.watch = c.asksWithinItsLease
	for range 3 {
		c.addReplica()
	}
	var actors, machines sync.WaitGroup
	machines.Go(func() { c.pauses.run(ctx) })
	for i := range 8 {
		machines.Go(func() { c.machine(machineName(i)) })
	}
	var jobs int64
	actors.Go(func() {
		for !c.over(80 * time.Millisecond) { // below the budget of a token
			jobs++
			c.crew.gitlab.enqueue(jobs)
		}
	})
	for _, f := range c.faults() {
		actors.Go(f)
	}
	actors.Go(c.lasts)
	actors.Wait()
	for i := range 8 {
		c.crew.book.order(machineName(i), false)
	}
	require.Eventually(t, func() bool { return len(c.unaccounted(jobs)) == 0 }, 90*time.Second, 50*time.Millisecond,
		"lost: %v", c.unaccountedLater(jobs))
	cancel()
	machines.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Empty(t, c.mu.problems)
	t.Logf("%d jobs, %d run, %d questions to GitLab", jobs, len(c.mu.ran), len(c.crew.gitlab.questions()))
	require.Greater(t, len(c.mu.ran), int(jobs)/2, "a run in which nothing ran shows nothing")
	fired, relayed := c.firedLocked()
	require.Greater(t, fired, leastFired, "nor does one without faults")
	require.NotZero(t, relayed)
	require.NotEmpty(t, c.mu.cancelled)
}

// leastFired is how many faults a run is to have seen.
const leastFired = 20

func (c *chaos) firedLocked() (fired, relayed int) {
	for _, log := range c.mu.logs {
		fired += log.count("kept") + log.count("trouble") + log.count("lease")
		relayed += countContaining(log, "Relayed:true")
	}
	return fired, relayed
}

// lasts ends the faults: after a while, and on a busy machine not before there were some.
func (c *chaos) lasts() {
	defer close(c.quit)
	<-time.After(*chaosFor)
	for range 600 {
		if c.seenEnough() {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
}

func (c *chaos) seenEnough() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	fired, relayed := c.firedLocked()
	return fired > leastFired && relayed > 0 && len(c.mu.cancelled) > 0
}

// unaccounted are the jobs of which nobody can say what became: neither run, nor left
// with a reason, nor written to a call that its machine ended at that moment.
func (c *chaos) unaccounted(jobs int64) (lost []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var told []string
	for _, log := range c.mu.logs {
		told = append(told, log.all()...)
	}
	for id := int64(1); id <= jobs; id++ {
		if _, ok := c.mu.ran[id]; ok || slices.ContainsFunc(told, func(line string) bool { return c.explainsLocked(line, id) }) {
			continue
		}
		lost = append(lost, id)
	}
	return lost
}

func (c *chaos) explainsLocked(line string, id int64) bool {
	if strings.HasPrefix(line, fmt.Sprintf("left %d: ", id)) {
		return true
	}
	machine, ok := strings.CutPrefix(line, fmt.Sprintf("given %d to ", id))
	if !ok {
		return false
	}
	name, _, _ := strings.Cut(machine, " ")
	return c.mu.cancelled[spillway.MachineID(name)] > 0
}

// unaccountedLater prints what is lost when a failure is printed.
func (c *chaos) unaccountedLater(jobs int64) fmt.Stringer { return lostJobs{c, jobs} }

type lostJobs struct {
	c    *chaos
	jobs int64
}

func (l lostJobs) String() string {
	var b strings.Builder
	for _, id := range l.c.unaccounted(l.jobs) {
		fmt.Fprintf(&b, "\njob %d:", id)
		for _, log := range l.c.mu.logs {
			for _, line := range log.all() {
				if strings.Contains(line, fmt.Sprintf(" %d", id)) {
					fmt.Fprintf(&b, "\n  %.160s", line)
				}
			}
		}
	}
	for _, r := range l.c.mu.replicas {
		lines := r.log.all()
		fmt.Fprintf(&b, "\nreplica %s: %+v\n  %s", r.desk.opt.Replica, r.desk.Status(), strings.Join(lines[max(0, len(lines)-8):], "\n  "))
		for _, line := range r.desk.lines() {
			line.mu.Lock()
			fmt.Fprintf(&b, "\n  now %s, not before %s, tend at %s, role %+v", time.Now(), line.mu.pace.notBefore, line.mu.tendAt, line.mu.role)
			line.mu.Unlock()
		}
	}
	return b.String()
}
