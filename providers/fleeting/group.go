package fleeting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway/internal/program"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fleeting/child"
	"github.com/spillway-ci/spillway/providers/fleeting/wire"
)

const (
	// maxHung is how many calls of one method in a row may hit their deadline before the
	// process counts as hung: others may be answered all the while.
	maxHung = 3
	// shutdownTime is for the plugin to end in order. The host gives Close 2 s.
	shutdownTime = 500 * time.Millisecond
	// closeWait is how long Close lets calls in flight finish.
	closeWait = time.Second
)

// group is the one group, and the process of the fleeting plugin that has it. Calls
// are made one after the other: an Update beside an Increase could not be told to be
// before or after it, and what it lists would be counted twice or not at all.
type group struct {
	config  config
	profile *wire.Profile
	image   *program.Image
	secrets *strings.Replacer

	life context.Context // ends with Close; every call's does, too
	end  context.CancelCauseFunc
	turn chan struct{} // one slot: who has put something in owns all below

	child     *child.Child // nil: none runs
	client    *wire.Client
	started   time.Time
	restarts  restarts
	hung      map[string]int // calls in a row that hit their deadline, by method
	pluginMax int            // 0 = not said
	closed    bool

	members     members
	listedAt    time.Time // when the last good Update began
	stale       bool      // something happened since
	beatAt      time.Time
	noHeartbeat bool // it is unimplemented
	tokens      pluginsdk.Tokens
}

func newGroup(c config, profile *wire.Profile, image *program.Image) *group {
	g := &group{config: c, profile: profile, image: image, turn: make(chan struct{}, 1), hung: map[string]int{}}
	g.secrets = secretsOf(c.PluginConfig, c.environment())
	g.life, g.end = context.WithCancelCause(context.Background())
	return g
}

// enter waits for the turn. The context that it returns ends also with the group.
func (g *group) enter(ctx context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.life, func() { cancel(errClosed) })
	done := func() { stop(); cancel(nil) }
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		done()
		return nil, nil, pluginsdk.Errorf(pluginsdk.KindTransient, "waiting for another call: %w", context.Cause(ctx))
	}
	leave := func() { <-g.turn; done() }
	switch {
	case g.closed:
		leave()
		return nil, nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "closed")
	case ctx.Err() != nil:
		err := pluginsdk.Errorf(pluginsdk.KindTransient, "not asked: %w", context.Cause(ctx))
		leave()
		return nil, nil, err
	}
	return ctx, leave, nil
}

// call makes one call of the fleeting plugin, which is started if it doesn't run. An
// answer may come together with an error.
func call[T any](ctx context.Context, g *group, what string, limit time.Duration, do func(context.Context, *wire.Client) (T, error)) (T, error) {
	var none T
	if err := g.start(ctx); err != nil {
		return none, err
	}
	calling, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := do(calling, g.client)
	if err == nil {
		delete(g.hung, what)
		return answer, nil
	}
	return answer, g.judge(ctx, what, limit, err)
}

// judge classifies an error and looks after the process: one that died is buried,
// one that answers nothing is killed.
func (g *group) judge(ctx context.Context, what string, limit time.Duration, err error) error {
	classified := g.callError(what, limit, err)
	switch {
	case status.Code(err) == codes.Unavailable:
		if fate, died := g.child.Died(ctx); died {
			g.bury(fate)
			return &pluginsdk.Error{Kind: pluginsdk.KindTransient, Message: what + ": the plugin died: " + g.clean(fate), Cause: err}
		}
	case hitDeadline(err) && ctx.Err() == nil: // by a deadline of ours: whoever asked gave it its time
		if g.hung[what]++; g.hung[what] >= maxHung {
			g.bury(fmt.Sprintf("killed: %s had no answer %d times in a row", what, maxHung))
		}
	case ctx.Err() == nil:
		delete(g.hung, what) // an error is an answer
	}
	return classified
}

// bury ends the process, if there is one, and notes why.
func (g *group) bury(why string) {
	if g.child == nil {
		return
	}
	g.child.Kill()
	g.child, g.client = nil, nil
	clear(g.hung)
	g.restarts.died(time.Now(), time.Since(g.started), why)
	g.stale = true
	fmt.Fprintf(os.Stderr, "the fleeting plugin is gone: %s\n", g.clean(why))
}

// start starts the fleeting plugin and calls Init, unless it runs.
func (g *group) start(ctx context.Context) error {
	if g.child != nil && !g.child.Alive() {
		fate, _ := g.child.Died(ctx)
		g.bury(fate)
	}
	if g.child != nil {
		return nil
	}
	if wait := g.restarts.wait(time.Now()); wait > 0 {
		e := pluginsdk.Errorf(pluginsdk.KindTransient, "the fleeting plugin is started again in %s: %s", wait.Round(100*time.Millisecond), g.clean(g.restarts.why))
		e.RetryAfter = wait
		return e
	}
	err := g.launch(ctx)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) { // else it was not the plugin's fault
		g.restarts.died(time.Now(), 0, err.Error())
	}
	return err
}

// launch starts a process and brings it to where calls can be made. When it fails no
// process is left.
func (g *group) launch(ctx context.Context) error {
	h := g.profile.Handshake
	c, err := child.Start(ctx, g.image, child.Spec{
		CookieKey: h.CookieKey, CookieValue: h.CookieValue, ProtocolVersions: h.ProtocolVersions, AutoMTLS: h.AutoMTLS,
		Env:    g.config.environment(),
		Redact: g.secrets.Replace,
		Say:    func(line string) { fmt.Fprintf(os.Stderr, "fleeting plugin: %s\n", g.clean(line)) },
	})
	if err != nil {
		return pluginsdk.Errorf(pluginsdk.KindTransient, "%w", errors.New(g.clean(err.Error())))
	}
	ctx, cancel := context.WithTimeout(ctx, g.config.Deadlines.Init)
	defer cancel()
	client, err := g.begin(ctx, c)
	if err != nil {
		c.Kill()
		return err
	}
	g.child, g.client, g.started = c, client, time.Now()
	g.stale = true
	return nil
}

// begin holds the profile against what the process serves, and calls Init.
func (g *group) begin(ctx context.Context, c *child.Child) (*wire.Client, error) {
	limit := g.config.Deadlines.Init
	described, err := wire.Read(ctx, c.Conn())
	if err != nil {
		return nil, g.callError("reading its descriptors", limit, err)
	}
	plan, err := wire.Resolve(described, g.profile.Binding)
	if err != nil {
		return nil, pluginsdk.Errorf(pluginsdk.KindInvalid, "%w: inspect it again", err)
	}
	client := wire.NewClient(c.Conn(), plan)
	most, err := client.Init(ctx, g.config.PluginConfig)
	if err != nil {
		return nil, g.callError("Init", limit, err)
	}
	g.pluginMax = max(0, most)
	return client, nil
}

// close ends the fleeting plugin in order, or, if a call still hangs, out of order.
func (g *group) close(ctx context.Context) error {
	wait := time.AfterFunc(closeWait, func() { g.end(errClosed) })
	defer wait.Stop()
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		g.end(errClosed)
		return pluginsdk.Errorf(pluginsdk.KindTransient, "a call of the fleeting plugin has not ended yet: %w", context.Cause(ctx))
	}
	defer func() { <-g.turn }()
	if g.closed {
		return nil
	}
	g.closed = true
	g.end(errClosed)
	if g.child != nil {
		if g.client.Has(wire.Shutdown) {
			ctx, cancel := context.WithTimeout(ctx, shutdownTime)
			_ = g.client.Shutdown(ctx) // it is ended anyway; unimplemented is no failure
			cancel()
		}
		g.child.Kill()
	}
	return g.image.Close()
}
