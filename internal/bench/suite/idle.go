package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/measure"
)

// The targets of runners that wait.
const (
	maxIdleKiB    = 52    // of memory for each
	minReconnects = 1_000 // a second, with the runners' ends on the same machine
)

const (
	// idleSettle is how long memory is left to settle after all have connected: what the
	// handshakes left behind is collected meanwhile, as it is in a fleet's first minutes.
	idleSettle = 75 * time.Second
	// maxIdleRounds bounds the rounds: they are long, and memory hardly differs between them.
	maxIdleRounds = 3
	// idleLook is how long memory is then looked at.
	idleLook = 5 * time.Second
	// idleProcesses share the runners.
	idleProcesses = 3
	// idlePools share the instances.
	idlePools = 9
)

func routerIdle() Benchmark {
	return Benchmark{"router/idle", "memory of a control plane for each waiting runner, and how fast they come back when it was killed", runIdle}
}

// idleFigures are of one way to be connected, one of each for a round.
type idleFigures struct {
	memory measure.Series // [KiB] per connection
	rate   measure.Series // [connections/s]
}

func newIdleFigures(name string) *idleFigures {
	return &idleFigures{
		memory: measure.Series{Name: "memory per runner: " + name},
		rate:   measure.Series{Name: "connections: " + name},
	}
}

// idleRun is the benchmark under way.
type idleRun struct {
	*idleStand

	runners idleRunners
	n       int
	settle  time.Duration

	tcp, tls, own      *idleFigures
	base, cpu          measure.Series
	unrecordedIn, lost int // of all rounds
}

func newIdleRun(stand *idleStand, settle time.Duration) *idleRun {
	return &idleRun{
		idleStand: stand, n: stand.pools * stand.each, settle: settle,
		tcp: newIdleFigures("TCP, a goroutine each"), tls: newIdleFigures("mutual TLS, a goroutine each"), own: newIdleFigures("Spillway, mutual TLS"),
		base: measure.Series{Name: "memory of the control plane without runners"}, cpu: measure.Series{Name: "CPU for each connection: control plane"},
	}
}

func runIdle(ctx context.Context, b *bench) (err error) {
	dir, err := os.MkdirTemp("", "spillway-bench-idle-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := writeAuthority(dir); err != nil {
		return err
	}
	stand, err := newIdleStand(ctx, dir, idlePools, b.pick(1_000, 50))
	if err != nil {
		return err
	}
	r := newIdleRun(stand, time.Duration(b.pick(int(idleSettle), int(idleSettle)/8)))
	defer func() {
		r.runners.stop()
		err = errors.Join(err, stand.stop())
	}()
	if r.runners, err = startIdleRunners(dir, idleProcesses, stand.instances()); err != nil {
		return err
	}
	for round := -1; round < min(b.Rounds, maxIdleRounds); round++ { // the first one warms the runners' processes up
		if err := r.round(ctx, round >= 0); err != nil {
			return err
		}
	}
	r.rows(b)
	return nil
}

// round has all runners connect in each way. Its figures count, or it only warms up.
func (r *idleRun) round(ctx context.Context, counts bool) error {
	for how, to := range map[string]*idleFigures{overTCP: r.tcp, overTLS: r.tls} {
		memory, rate, err := r.raw(ctx, how)
		if err != nil {
			return fmt.Errorf("%s: %w", how, err)
		}
		if counts {
			to.add(memory, rate)
		}
	}
	return r.ownRound(ctx, counts)
}

func (f *idleFigures) add(memory, rate float64) {
	f.memory.Figures = append(f.memory.Figures, memory)
	f.rate.Figures = append(f.rate.Figures, rate)
}

// raw has them connect to a server with nothing behind it.
func (r *idleRun) raw(ctx context.Context, how string) (kib, rate float64, err error) {
	p, addr, err := startRaw(ctx, r.dir, how)
	if err != nil {
		return 0, 0, err
	}
	defer p.Stop()
	settled := func() (measure.Usage, error) {
		if err := p.Say("settle"); err != nil {
			return measure.Usage{}, err
		}
		if _, err := p.Hear(ctx, "settled"); err != nil {
			return measure.Usage{}, err
		}
		return usageOfOne(p.PID())
	}
	before, err := settled()
	if err != nil {
		return 0, 0, err
	}
	took, err := r.runners.connect(ctx, how, addr)
	if err != nil {
		return 0, 0, err
	}
	after, err := settled()
	if err != nil {
		return 0, 0, err
	}
	return r.kibPer(after.Resident - before.Resident), float64(r.n) / took.Seconds(), r.runners.drop(ctx)
}

func usageOfOne(pid int) (measure.Usage, error) {
	u, ok := measure.UsageOf(pid)
	if !ok {
		return u, fmt.Errorf("%w: there is no /proc on this system, or no process %d", errSkipped, pid)
	}
	return u, nil
}

func (r *idleRun) kibPer(bytes int64) float64 { return float64(bytes) / 1024 / float64(r.n) }

// ownRound has the control plane killed, and all runners connect to the one that comes
// after it.
func (r *idleRun) ownRound(ctx context.Context, counts bool) error {
	if err := r.restart(ctx); err != nil {
		return err
	}
	base, err := r.plane.resident(ctx, 2*reactTick)
	if err != nil {
		return err
	}
	before, err := usageOfOne(r.plane.pid())
	if err != nil {
		return err
	}
	began := time.Now()
	took, err := r.runners.connect(ctx, overGRPC, r.addr)
	if err != nil {
		return err
	}
	after, err := usageOfOne(r.plane.pid())
	if err != nil || !counts {
		return err
	}
	missing, err := r.unrecorded(ctx, began)
	if err != nil {
		return err
	}
	r.unrecordedIn += missing
	if err := wait(ctx, r.settle); err != nil {
		return err
	}
	held, err := r.plane.resident(ctx, idleLook)
	if err != nil {
		return err
	}
	alive, err := r.runners.alive(ctx)
	if err != nil {
		return err
	}
	r.lost += r.n - alive
	rest := base.Spread().Median
	r.own.add(r.kibPer(int64((held.Spread().Median-rest)*1e6)), float64(r.n)/took.Seconds())
	r.base.Figures = append(r.base.Figures, rest)
	r.cpu.Figures = append(r.cpu.Figures, micros(after.CPU-before.CPU)/float64(r.n))
	return nil
}

func (r *idleRun) rows(b *bench) {
	memory := measure.RowOf(r.own.memory, "KiB").Against(r.own.memory, r.tls.memory).Judged(measure.ValueAtMost(maxIdleKiB))
	memory.Exact = true // no load of the machine makes it larger
	b.add(
		measure.ReferenceRow(r.tls.memory, "KiB"),
		measure.RowOf(r.tcp.memory, "KiB").Against(r.tcp.memory, r.tls.memory),
		memory,
		measure.RowOf(r.base, "MB"),
		measure.ReferenceRow(r.tls.rate, "1/s"),
		measure.RowOf(r.tcp.rate, "1/s").Against(r.tcp.rate, r.tls.rate),
		measure.RowOf(r.own.rate, "1/s").Against(r.own.rate, r.tls.rate).Judged(measure.ValueAtLeast(minReconnects)),
		measure.RowOf(r.cpu, "µs"),
		measure.Exactly("runners without a record in the store, all rounds", "runners", r.unrecordedIn, 0),
		measure.Exactly("connections lost while idle, all rounds", "connections", r.lost, 0),
	)
	b.note("%d runners on as many instances of %d pools, each with a connection and a certificate of its own, heartbeats every 15 s; they are %d other processes, which begin %d connections at the same time; control plane, plugin and Redis are processes; the cloud is a stand-in in this process",
		r.n, r.pools, idleProcesses, idleProcesses*maxHandshakes)
	b.note("the control plane is killed before each round, and the one after it has all runners registered and recorded; its memory is what is resident %s later, garbage and all; the servers with a goroutine for each connection do nothing, and have collected theirs", r.settle)
	b.note("both ends of a connection share this machine: the rate is of both; CPU for each connection is of the control plane alone, until all are registered, with what the scaler does meanwhile")
}
