package providers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Watch calls notify, never twice at a time, for each interruption of an instance
// of groups until ctx ends; it returns nil then, and at once without groups. The watch
// is begun again, with a growing delay, when it breaks or the plugin restarts; what
// happens meanwhile is missed, and shows in the lists. ErrUnsupported is final.
func (p *Plugin) Watch(ctx context.Context, groups []string, notify func(pluginsdk.Interruption)) error {
	var telling sync.Mutex
	tell := func(i pluginsdk.Interruption) {
		telling.Lock()
		defer telling.Unlock()
		notify(i)
	}
	pages, ctx := errgroup.WithContext(ctx)
	for page := range slices.Chunk(groups, pluginsdk.MaxGroupsPerCall) {
		pages.Go(func() error { return p.watchPage(ctx, page, tell) })
	}
	return pages.Wait()
}

// watchPage watches as many groups as one call may name.
func (p *Plugin) watchPage(ctx context.Context, groups []string, notify func(pluginsdk.Interruption)) error {
	known := slices.Clone(groups)
	ours := func(i pluginsdk.Interruption) {
		if slices.Contains(known, i.Group) && i.InstanceID != "" && len(i.InstanceID) <= maxInstanceIDBytes {
			notify(i)
		}
	}
	for failures := 0; ; failures++ {
		began := time.Now()
		err := p.watchOnce(ctx, known, ours)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the caller's wish, whatever the watch says to it
		}
		if errors.Is(err, pluginsdk.ErrUnsupported) || p.State().Phase == Closed {
			return err
		}
		if time.Since(began) >= p.timing.Settle {
			failures = 0
		}
		p.log.LogAttrs(ctx, slog.LevelWarn, "watch for interruptions broke", slog.String("error", err.Error()))
		if !pause(ctx, unevenly(p.timing.backoff(failures))) {
			return nil
		}
	}
}

// watchOnce watches with the session of the moment, to its end.
func (p *Plugin) watchOnce(ctx context.Context, groups []string, notify func(pluginsdk.Interruption)) error {
	s, err := p.live(ctx)
	if err != nil {
		return err
	}
	err = s.provider.Watch(ctx, groups, notify)
	if err == nil {
		err = pluginsdk.Errorf(pluginsdk.KindTransient, "the watch ended")
	}
	return err
}

// pause waits d; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
