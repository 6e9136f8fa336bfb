package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/gitlab/jobrouter"
	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/bench/measure"
	"github.com/spillway-ci/spillway/store"
)

const (
	// pollRunners is how many runners wait at each replica.
	pollRunners = 3
	// pollTimeout is how long another replica may take until it asks: more than a lease.
	pollTimeout = 40 * time.Second
	// replicaHeader names the replica that asks.
	replicaHeader = "X-Spillway-Replica"
)

// pollReplicas are the two.
var pollReplicas = [2]string{"left", "right"}

func gitlabPoll() Benchmark {
	return Benchmark{"gitlab/poll", "two replicas, one runner token: the one that asks GitLab is killed → the other asks", runPoll}
}

func runPoll(ctx context.Context, b *bench) error {
	instances := len(pollReplicas) * pollRunners
	return withGitLab(ctx, b, gitlabShape{
		pools: 1, group: asgstub.GroupConfig{Min: instances, Desired: instances, Max: instances, NewInstancesProtected: true},
		policy: map[string]any{"min": instances, "max": instances, "register_timeout": "24h"},
		route:  map[string]any{"front": true}, pool: routePool,
	}, pollRounds)
}

func pollRounds(ctx context.Context, b *bench, s *gitlabStand) error {
	leases, err := store.Open(ctx, store.Options{Addrs: []string{s.redis.Addr}})
	if err != nil {
		return err
	}
	defer func() { _ = leases.Close() }()
	d := &pollDuel{stand: s, leases: leases, planes: map[string]*planeProcess{}, calm: time.Duration(b.pick(10, 4)) * time.Second}
	defer d.stop()
	if err := d.start(ctx); err != nil {
		return err
	}
	killed := measure.Series{Name: "kill -9 of the one that asks → the other asks"}
	for range b.pick(b.Rounds, 1) { // each costs a lease
		if err := d.takeOver(ctx, &killed, d.kill); err != nil {
			return err
		}
	}
	b.add(measure.RowOf(killed, "s"))
	if !b.Short {
		frozen := measure.Series{Name: "the one that asks is stopped for longer than its lease → the other asks"}
		if err := d.takeOver(ctx, &frozen, d.freeze); err != nil {
			return err
		}
		b.add(measure.RowOf(frozen, "s"))
	}
	if err := wait(ctx, d.calm); err != nil {
		return err
	}
	all := s.gitlab.CallsTo(gitlabtest.RouteRequestJob)
	polls := pollsOf(all)
	b.add(
		measure.Exactly("questions within another's lease", "questions", intruders(polls, d.losses), 0),
		measure.Exactly("changes of who asks", "changes", changes(polls), len(d.losses)),
		measure.RowOf(measure.Series{Name: "questions of replicas in all", Figures: []float64{float64(len(polls))}}, "questions"),
		measure.RowOf(measure.Series{Name: "questions of runners whose router was away", Figures: []float64{float64(len(all) - len(polls))}}, "questions"),
	)
	b.note("a lease is %s, renewed every %s; when its holder is lost, its end is read from Redis. %d runners wait at each replica, and GitLab is asked once every %s; what counts is GitLab's log",
		jobrouter.DefaultLeaseTTL, jobrouter.DefaultRenewEvery, pollRunners, jobrouter.DefaultPollEvery)
	return nil
}

// pollDuel is two replicas of which one asks GitLab.
type pollDuel struct {
	stand   *gitlabStand
	leases  *store.Store
	planes  map[string]*planeProcess
	runners []*waitingRunners
	calm    time.Duration // before each loss
	losses  []loss
}

// loss is the end of a holder of the token's lease.
type loss struct {
	holder string
	free   time.Time // until when the lease is the holder's
}

func (d *pollDuel) start(ctx context.Context) error {
	var instances []string
	for _, in := range d.stand.cloud.Existing(groupName(0)) {
		instances = append(instances, in.ID)
	}
	for i, name := range pollReplicas {
		if err := d.restart(ctx, name); err != nil {
			return err
		}
		runners, err := startRunners("http://"+d.planes[name].log.at.GitLab, d.stand.token, instances[i*pollRunners:(i+1)*pollRunners])
		if err != nil {
			return err
		}
		d.runners = append(d.runners, runners)
	}
	return nil
}

func (d *pollDuel) restart(ctx context.Context, name string) (err error) {
	d.planes[name], err = d.stand.start(ctx, name)
	return err
}

func (d *pollDuel) stop() {
	for _, r := range d.runners {
		r.stop()
	}
}

// ending takes a replica away; back brings it back.
type ending func(ctx context.Context, name string) (at time.Time, back func() error, err error)

// takeOver ends the one that asks, and adds how long it took until the other asked [s].
func (d *pollDuel) takeOver(ctx context.Context, took *measure.Series, end ending) error {
	if err := wait(ctx, d.calm); err != nil {
		return err
	}
	asked := d.polls()
	if len(asked) == 0 {
		return errors.New("GitLab is not asked for jobs")
	}
	holder := asked[len(asked)-1].replica
	at, back, err := end(ctx, holder)
	if err != nil {
		return err
	}
	free, err := d.leaseEnd(ctx, holder)
	if err != nil {
		return err
	}
	d.losses = append(d.losses, loss{holder: holder, free: free})
	var first poll
	err = until(ctx, pollTimeout, "the other replica did not ask GitLab", func() bool {
		all := d.polls()
		i := slices.IndexFunc(all, func(p poll) bool { return p.at.After(at) && p.replica != holder })
		if i >= 0 {
			first = all[i]
		}
		return i >= 0
	})
	if err != nil {
		return err
	}
	took.Figures = append(took.Figures, first.at.Sub(at).Seconds())
	return back()
}

// kill ends a replica as if its machine had failed; back starts it anew.
func (d *pollDuel) kill(ctx context.Context, name string) (at time.Time, back func() error, err error) {
	p := d.planes[name]
	at = p.kill()
	d.stand.gone(p)
	return at, func() error { return d.restart(ctx, name) }, nil
}

// freeze stops a replica in the middle of what it does; back lets it go on, as if nothing
// had been.
func (d *pollDuel) freeze(_ context.Context, name string) (at time.Time, back func() error, err error) {
	process := d.planes[name].cmd.Process
	at = time.Now()
	return at, func() error { return process.Signal(syscall.SIGCONT) }, process.Signal(syscall.SIGSTOP)
}

// leaseEnd is until when the token's lease is the holder's, by Redis: it is asked for in
// the name of somebody else, who must not get it.
func (d *pollDuel) leaseEnd(ctx context.Context, holder string) (time.Time, error) {
	now := time.Now()
	_, err := d.leases.Acquire(ctx, "gitlab/token/"+gitlabtest.HashToken(d.stand.token), "bench@", time.Millisecond)
	var held *store.HeldError
	switch {
	case !errors.As(err, &held):
		return time.Time{}, fmt.Errorf("replica %s asked GitLab and has no lease: %w", holder, err)
	case held.Holder != holder+"@"+d.stand.listen[holder].jobRouter:
		return time.Time{}, fmt.Errorf("replica %s asked GitLab, and the lease is held by %s", holder, held.Holder)
	}
	return now.Add(held.Rest - time.Millisecond), nil // Redis counts in milliseconds
}

func (d *pollDuel) polls() []poll { return pollsOf(d.stand.gitlab.CallsTo(gitlabtest.RouteRequestJob)) }

// poll is one question for a job that a replica has put.
type poll struct {
	at      time.Time
	replica string
}

// pollsOf leaves out what runners ask themselves, by way of a front proxy that came back
// before they took the job router for well again.
func pollsOf(calls []gitlabtest.Call) (polls []poll) {
	for _, c := range calls {
		if replica := c.Header.Get(replicaHeader); replica != "" {
			polls = append(polls, poll{c.At, replica})
		}
	}
	return polls
}

// intruders are the questions of a replica while the lease was another's: that had not
// been lost, or whose lease went on.
func intruders(polls []poll, losses []loss) (n int) {
	holder := ""
	for _, p := range polls {
		over := func(l loss) bool { return l.holder == holder && !p.at.Before(l.free) }
		switch {
		case holder == "" || p.replica == holder:
			holder = p.replica
		case slices.ContainsFunc(losses, over):
			losses = slices.DeleteFunc(slices.Clone(losses), over)
			holder = p.replica
		default:
			n++
		}
	}
	return n
}

// changes is how often another replica asked than before.
func changes(polls []poll) (n int) {
	for i := 1; i < len(polls); i++ {
		if polls[i].replica != polls[i-1].replica {
			n++
		}
	}
	return n
}
