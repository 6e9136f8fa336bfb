package providers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/spillway-ci/spillway/internal/program"
)

// Options are a host's. All may be left zero.
type Options struct {
	Dir      string // for sockets, private; empty: one in the directory for temporary files
	Timing   Timing
	Observer Observer
	Logger   *slog.Logger
	// Redact masks secrets in what plugins print.
	Redact func(string) string
}

func (o Options) withDefaults() Options {
	o.Timing = o.Timing.withDefaults()
	o.Observer = o.Observer.withDefaults()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Redact == nil {
		o.Redact = func(s string) string { return s }
	}
	return o
}

// Host runs plugins: one process per binary, configuration and environment,
// however many providers of the configuration name it.
type Host struct {
	options Options
	sockets *socketDir
	mu      struct {
		sync.Mutex
		closed  bool
		running map[string]*tenancy
	}
}

// tenancy is a running plugin and its owners.
type tenancy struct {
	plugin *Plugin
	owners int
	end    context.CancelFunc // asks the supervisor to close the plugin
	hurry  context.CancelFunc // and not to be patient about it
	gone   chan struct{}      // closed when the supervisor has returned
}

// NewHost makes the directory for sockets and clears it of what hosts that are
// no more have left.
func NewHost(o Options) (*Host, error) {
	o = o.withDefaults()
	sockets, err := newSocketDir(o.Dir)
	if err != nil {
		return nil, err
	}
	h := &Host{options: o, sockets: sockets}
	h.mu.running = map[string]*tenancy{}
	return h, nil
}

// Open starts the plugin, or joins it where it runs already, and waits until it
// answers calls. Each Open needs a Close. When it fails nothing is left.
func (h *Host) Open(ctx context.Context, spec Spec) (*Plugin, error) {
	p, err := h.Start(spec)
	if err != nil {
		return nil, err
	}
	if err := p.Ready(ctx); err != nil {
		return nil, errors.Join(err, p.Close(ctx))
	}
	return p, nil
}

// Start is Open without waiting: the error is about spec and the file. A plugin
// that doesn't come up is tried again, and its State says why.
func (h *Host) Start(spec Spec) (*Plugin, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if len(spec.Config) == 0 {
		spec.Config = []byte("{}")
	}
	img, err := program.Open(spec.Path, spec.SHA256, h.sockets.path)
	if err != nil {
		return nil, fmt.Errorf("provider %q: %w", spec.Name, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return nil, errors.Join(ErrClosed, img.Close())
	}
	key := spec.key(img.Sum)
	t := h.mu.running[key]
	if t != nil {
		t.owners++
		return t.plugin, img.Close()
	}
	t = h.launch(spec, img)
	t.plugin.stop = func(ctx context.Context) error { return h.release(ctx, key, t) }
	h.mu.running[key] = t
	return t.plugin, nil
}

// launch starts the supervisor of a new plugin.
func (h *Host) launch(spec Spec, img *program.Image) *tenancy {
	p := newPlugin(spec, img.Sum, h.options)
	ctx, end := context.WithCancel(context.Background())
	kill, hurry := context.WithCancel(context.Background())
	t := &tenancy{plugin: p, owners: 1, end: end, hurry: hurry, gone: make(chan struct{})}
	s := newSupervisor(p, &launcher{
		spec: spec, image: img, parent: h.sockets.path,
		output: newOutput(p.log, h.options.Redact), timing: h.options.Timing,
	})
	go func() {
		defer close(t.gone)
		defer func() { _ = img.Close() }()
		s.run(ctx, kill)
	}()
	return t
}

// release gives up one ownership, and the plugin with the last.
func (h *Host) release(ctx context.Context, key string, t *tenancy) error {
	h.mu.Lock()
	if t.owners > 0 {
		t.owners--
	}
	last := t.owners == 0
	if last && h.mu.running[key] == t {
		delete(h.mu.running, key)
	}
	h.mu.Unlock()
	if !last {
		return nil
	}
	return t.close(ctx)
}

func (t *tenancy) close(ctx context.Context) error {
	defer t.hurry()
	t.end()
	select {
	case <-t.gone:
		return nil
	case <-ctx.Done():
	}
	t.hurry()
	<-t.gone // a killed process is gone in no time
	return context.Cause(ctx)
}

// States lists the plugins by name.
func (h *Host) States() []State {
	h.mu.Lock()
	defer h.mu.Unlock()
	states := make([]State, 0, len(h.mu.running))
	for _, t := range h.mu.running {
		s := t.plugin.State()
		s.Owners = t.owners
		states = append(states, s)
	}
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.Name, b.Name) })
	return states
}

// Close closes all plugins, whoever owns them, at the same time. No process is
// left when it returns.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	if h.mu.closed {
		h.mu.Unlock()
		return nil
	}
	h.mu.closed = true
	running := h.mu.running
	h.mu.running = map[string]*tenancy{}
	h.mu.Unlock()

	errs := make([]error, len(running))
	var wait sync.WaitGroup
	i := 0
	for _, t := range running {
		at := i
		i++
		wait.Go(func() { errs[at] = t.close(ctx) })
	}
	wait.Wait()
	return errors.Join(append(errs, h.sockets.close())...)
}
