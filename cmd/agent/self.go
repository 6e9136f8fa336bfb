package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/agent"
	"github.com/spillway-ci/spillway/agent/notices"
)

// minCheckEvery is the least time between two health checks: more often they would
// be what is wrong with the machine.
const minCheckEvery = time.Second

// checkSelf finds mistakes in the flags about this machine itself.
func (f *flags) checkSelf() error {
	if _, err := notices.ParseCloud(f.cloud); err != nil {
		return fmt.Errorf("%w: --cloud: %w", errUsage, err)
	}
	if f.check.Command == "" {
		return nil
	}
	if f.check.Every < minCheckEvery || f.check.Failures < 1 {
		return fmt.Errorf("%w: --health-check-every must be at least %s and --health-check-failures at least 1", errUsage, minCheckEvery)
	}
	if err := f.check.Validate(); err != nil {
		return fmt.Errorf("%w: --health-check: %w", errUsage, err)
	}
	return nil
}

// listenToItself has the agent told what this machine's cloud and its own check say
// of it until ctx ends, and asks which instance it is if nobody said.
func (f *flags) listenToItself(ctx context.Context, o *agent.Options, watching *sync.WaitGroup) error {
	watcher, err := notices.Open(ctx, notices.Options{Cloud: notices.Cloud(f.cloud), Endpoint: f.metadataEndpoint, Log: o.Log})
	if err != nil {
		return fmt.Errorf("%w: --metadata-endpoint: %w", errUsage, err)
	}
	cloud := watcher.Cloud()
	if o.InstanceID == "" && cloud != notices.NoCloud {
		if o.InstanceID, err = watcher.InstanceID(ctx); err != nil {
			return fmt.Errorf("%w: give it with --instance-id, or correct --cloud", err)
		}
	}
	o.Log.Info("this machine", "cloud", string(cloud), "instance", o.InstanceID, "told_of_interruptions", cloud != notices.NoCloud)
	if cloud != notices.NoCloud {
		o.Notices = watcher.Watch(ctx)
	}
	if f.check.Command != "" {
		check, news := f.check, make(chan string)
		check.Log, check.WorkDir = o.Log, cmp.Or(o.WorkDir, os.TempDir())
		watching.Go(func() { check.Run(ctx, news) })
		o.Health = news
	}
	return nil
}
