package play

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

const (
	// beginWithin is how long all programs may take until they answer.
	beginWithin = time.Minute
	// playWithin bounds one round.
	playWithin = 5 * time.Minute
	// lookEvery is how often jobs and pools are looked at.
	lookEvery = 200 * time.Millisecond
)

// The exit codes, as controlplane has them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// Wave is a push of jobs.
type Wave struct {
	After time.Duration // since the wave before
	Jobs  int
}

// Example is one example.
type Example struct {
	Name  string                              // of its folder
	Waves []Wave                              // a round of it
	Begin func(context.Context, *Stage) error // starts what it needs besides; may be nil
	End   func(*Stage)                        // says what is worth knowing after a round; may be nil
}

// Main plays an example and returns its exit code.
func Main(e Example) int {
	loop := flag.Bool("loop", false, "begin anew after each round, until ^C")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "what is %q?\n", flag.Arg(0))
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := e.play(ctx, *loop)
	switch {
	case ctx.Err() != nil:
		fmt.Println("interrupted: everything that was started is stopped")
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	return exitDone
}

func (e Example) play(ctx context.Context, loop bool) (err error) {
	s, err := open(e.Name, os.Stdout)
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
	}
	if err != nil {
		return err
	}
	if err := e.begin(ctx, s); err != nil {
		return err
	}
	for {
		if err := e.round(ctx, s); err != nil || !loop {
			return err
		}
	}
}

func (e Example) begin(ctx context.Context, s *Stage) error {
	ctx, cancel := context.WithTimeoutCause(ctx, beginWithin, fmt.Errorf("not all was ready after %s", beginWithin))
	defer cancel()
	s.Say("GitLab          a stand-in at %s, with one runner, which takes jobs with the tag %s", s.Config.GitLab.URL, JobTag)
	if e.Begin != nil {
		if err := e.Begin(ctx, s); err != nil {
			return err
		}
	}
	return s.serve(ctx)
}

// round pushes all waves and ends when their jobs have ended and all pools are back at
// their minimum.
func (e Example) round(ctx context.Context, s *Stage) error {
	ctx, cancel := context.WithTimeoutCause(ctx, playWithin, fmt.Errorf("not all was done after %s", playWithin))
	defer cancel()
	t := newTable(s.out, time.Now())
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for waves, pushed := e.Waves, time.Now(); ; {
		list, err := s.admin.ListPools(ctx, &adminv1.ListPoolsRequest{})
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		n := s.GitLab.Count()
		t.show(time.Now(), n, list.GetPools())
		if len(waves) == 0 && n.Waiting+n.Running == 0 && atMinimum(list.GetPools()) {
			return e.end(s, n)
		}
		if len(waves) > 0 && time.Since(pushed) >= waves[0].After {
			s.GitLab.push(waves[0].Jobs)
			t.note(time.Now(), "%d jobs are pushed", waves[0].Jobs)
			waves, pushed = waves[1:], time.Now()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.plane.done:
			return s.plane.failed("ended")
		case <-tick.C:
		}
	}
}

func (e Example) end(s *Stage, n Count) error {
	s.Say("%d jobs have ended, %d of them failed; all instances are gone", n.Ended, n.Failed)
	if e.End != nil {
		e.End(s)
	}
	if n.Failed > 0 {
		return errors.New("no job should fail here")
	}
	return nil
}

func atMinimum(pools []*adminv1.PoolStatus) bool {
	for _, p := range pools {
		if p.GetDesired() != p.GetMin() || p.GetInService()+p.GetBooting() > p.GetMin() || p.GetDraining()+p.GetLost() > 0 {
			return false
		}
	}
	return len(pools) > 0
}
