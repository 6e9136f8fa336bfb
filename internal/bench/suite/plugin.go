package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/measure"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
)

// The targets of a provider plugin.
const (
	minOfPlainCall    = 0.9
	maxLaunchMillis   = 60
	maxRecoverMillis  = 250
	recoverTimeout    = 30 * time.Second
	callsBeforeDeaths = 100
)

func pluginCall() Benchmark {
	return Benchmark{"plugin/call", "Status of a provider in its own process, one caller", runPluginCall}
}

func runPluginCall(ctx context.Context, b *bench) error {
	dir, err := os.MkdirTemp("", "spillway-bench-plugin-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := buildFakePlugin(ctx, dir)
	if err != nil {
		return err
	}
	host, err := providers.NewHost(providers.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = host.Close(context.WithoutCancel(ctx)) }()
	spec := providers.Spec{Name: "fake", Path: path, Config: fakeConfig()}
	if err := compareCalls(ctx, b, host, spec); err != nil {
		return err
	}
	if err := timeLaunches(ctx, b, host, spec); err != nil {
		return err
	}
	b.note("the reference is grpc-go with mutual TLS 1.3 on a Unix socket: same message, same provider code, another process; the host adds deadlines, cool-off, batching and observation")
	return nil
}

func compareCalls(ctx context.Context, b *bench, host *providers.Host, spec providers.Spec) error {
	secure, err := startPlainProvider(ctx, true)
	if err != nil {
		return err
	}
	defer secure.stop()
	bare, err := startPlainProvider(ctx, false)
	if err != nil {
		return err
	}
	defer bare.stop()
	p, err := host.Open(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close(context.WithoutCancel(ctx)) }()
	group := p.Group("pool", fakeGroup)
	calls := b.pick(2_000, 300)
	series, err := measure.Rounds(ctx, b.Rounds, []measure.Subject{
		callSubject("plain grpc-go, mutual TLS", calls, secure.status),
		callSubject("Spillway's host, AutoMTLS", calls, func(ctx context.Context) error {
			_, err := group.Status(ctx)
			return err
		}),
		callSubject("plain grpc-go, no TLS", calls, bare.status),
	})
	if err != nil {
		return err
	}
	b.add(measure.ReferenceRow(series[0], "calls/s"),
		measure.RowOf(series[1], "calls/s").Against(series[1], series[0]).Judged(measure.RatioAtLeast(minOfPlainCall)),
		measure.RowOf(series[2], "calls/s").Against(series[2], series[0]))
	return nil
}

func callSubject(name string, calls int, call func(context.Context) error) measure.Subject {
	return measure.Subject{Name: name, Run: func(ctx context.Context) (float64, error) {
		began := time.Now()
		for range calls {
			if err := call(ctx); err != nil {
				return 0, err
			}
		}
		return float64(calls) / time.Since(began).Seconds(), nil
	}}
}

// timeLaunches measures how long it takes until a plugin answers: after it was
// opened, and after it was killed.
func timeLaunches(ctx context.Context, b *bench, host *providers.Host, spec providers.Spec) error {
	launch, recovery := measure.Series{Name: "launch → first answer"}, measure.Series{Name: "kill -9 → next answer"}
	for range b.Rounds {
		took, p, err := launchOnce(ctx, host, spec)
		if err != nil {
			return err
		}
		launch.Figures = append(launch.Figures, millis(took))
		took, err = recoverOnce(ctx, p)
		if err := errors.Join(err, p.Close(context.WithoutCancel(ctx))); err != nil {
			return err
		}
		recovery.Figures = append(recovery.Figures, millis(took))
	}
	b.add(measure.RowOf(launch, "ms").Judged(measure.ValueAtMost(maxLaunchMillis)),
		measure.RowOf(recovery, "ms").Judged(measure.ValueAtMost(maxRecoverMillis)))
	return nil
}

func launchOnce(ctx context.Context, host *providers.Host, spec providers.Spec) (time.Duration, *providers.Plugin, error) {
	began := time.Now()
	p, err := host.Open(ctx, spec)
	if err != nil {
		return 0, nil, err
	}
	if _, err := p.Group("pool", fakeGroup).Status(ctx); err != nil {
		return 0, nil, errors.Join(err, p.Close(ctx))
	}
	return time.Since(began), p, nil
}

// recoverOnce kills the plugin's process and asks until another one answers.
func recoverOnce(ctx context.Context, p *providers.Plugin) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	group, pid := p.Group("pool", fakeGroup), p.State().PID
	for range callsBeforeDeaths {
		if _, err := group.Status(ctx); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, fmt.Errorf("killing our plugin: %w", err)
	}
	for {
		_, err := group.Status(ctx)
		if err == nil && p.State().PID != pid {
			return time.Since(began), nil
		}
		if err != nil && !errors.Is(err, pluginsdk.ErrTransient) || ctx.Err() != nil {
			return 0, fmt.Errorf("the plugin did not come back: %w", errors.Join(err, ctx.Err()))
		}
	}
}
