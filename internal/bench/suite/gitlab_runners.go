package suite

import (
	"context"
	"fmt"
	"sync"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest/minirunner"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/internal/bench/child"
)

// gitlabRunnersRole is the process of runners that find their job router, ask it for a
// job and wait.
const gitlabRunnersRole = "gitlab-runners"

// waitingRunners are runners as GitLab's are on the wire, each with a connection of its
// own.
type waitingRunners struct {
	all     []*minirunner.Runner
	end     context.CancelFunc
	running sync.WaitGroup
}

// startRunners starts a runner on each of the instances. url is theirs of GitLab: that of
// a front proxy.
func startRunners(url, token string, instances []string) (*waitingRunners, error) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &waitingRunners{end: cancel}
	for _, id := range instances {
		r, err := minirunner.New(minirunner.Options{
			URL: url, Token: token, SystemID: "r_" + id, Router: true, Labels: map[string]string{route.InstanceLabel: id},
		})
		if err != nil {
			w.stop()
			return nil, err
		}
		w.all = append(w.all, r)
		w.running.Go(func() { _ = r.Run(ctx) }) // it has no job that could be cut short
	}
	return w, nil
}

func (w *waitingRunners) stop() {
	w.end()
	w.running.Wait()
}

// runnersDid is what runners did so far.
type runnersDid struct {
	getJobs int // questions to the job router
	direct  int // questions to GitLab itself
	trips   int // times that one took the router for ill
}

func (w *waitingRunners) did() (d runnersDid) {
	for _, r := range w.all {
		s := r.Stats()
		d.getJobs += s.GetJobs
		d.direct += s.Direct
		d.trips += s.Trips
	}
	return d
}

// runGitLabRunners is the child: URL TOKEN. It starts one runner for each instance that
// it is told.
func runGitLabRunners(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("a child needs a URL and a token, got %d arguments", len(args))
	}
	var instances []string
	var runners *waitingRunners
	err := child.Orders(func(order string, words []string) (err error) {
		switch {
		case order == "runner" && len(words) == 1:
			instances = append(instances, words[0])
		case order == "start" && runners == nil:
			if runners, err = startRunners(args[0], args[1], instances); err != nil {
				return err
			}
			child.Answer("started")
		case order == "look" && runners != nil:
			d := runners.did()
			child.Answer("did", d.getJobs, d.direct, d.trips)
		default:
			return fmt.Errorf("unknown order %s %q", order, words)
		}
		return nil
	})
	if runners != nil {
		runners.stop()
	}
	return err
}

// runnersProcess is the parent's end.
type runnersProcess struct{ *child.Process }

func startRunnersProcess(ctx context.Context, url, token string, instances []string) (runnersProcess, error) {
	p, err := child.Start(gitlabRunnersRole, url, token)
	if err != nil {
		return runnersProcess{}, err
	}
	for _, id := range instances {
		if err := p.Say("runner", id); err != nil {
			p.Stop()
			return runnersProcess{}, err
		}
	}
	if err := p.Say("start"); err != nil {
		p.Stop()
		return runnersProcess{}, err
	}
	if _, err := p.Hear(ctx, "started"); err != nil {
		p.Stop()
		return runnersProcess{}, err
	}
	return runnersProcess{p}, nil
}

func (p runnersProcess) did(ctx context.Context) (d runnersDid, err error) {
	if err := p.Say("look"); err != nil {
		return d, err
	}
	said, err := p.Hear(ctx, "did")
	if err != nil {
		return d, err
	}
	_, err = fmt.Sscan(said, &d.getJobs, &d.direct, &d.trips)
	return d, err
}
