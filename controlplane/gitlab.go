package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/frontproxy"
	"github.com/spillway-ci/spillway/gitlab/jobrouter"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/gitlab/webhook"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/scaler/watch"
	"github.com/spillway-ci/spillway/server"
)

// drainGrace is what runners that wait have to be sent to GitLab at a stop.
const drainGrace = 2 * time.Second

// gitLab is all that a replica has to do with GitLab.
type gitLab struct {
	c       *ControlPlane
	cfg     *config.GitLab
	client  *gitlab.Client
	sources *collect.Sources
	known   *capabilities

	hook http.Handler // nil: no webhooks

	// What watches the machines of pools that others hand jobs to.
	exporters *collect.Exporters // nil: no pool's metrics are read
	lists     *watch.Lists
	machines  *watch.Machines
	hooks     *hookChecks

	// Route mode; all nil without it.
	tokens    *route.Tokens
	contacts  *route.Contacts
	desk      *jobrouter.Desk
	holds     *holds
	tunnel    *jobrouter.Tunnel
	tunneled  *grpc.Server // what the tunnel's connections end at
	discovery *jobrouter.Discovery
	proxy     *frontproxy.Proxy // nil: one path only
}

// makeGitLab makes what serves GitLab and its runners; watchGitLab makes the rest,
// once there are plugins.
func (c *ControlPlane) makeGitLab(context.Context) (err error) {
	if c.cfg.GitLab == nil {
		return nil
	}
	g := &gitLab{c: c, cfg: c.cfg.GitLab}
	if g.client, err = newGitLabClient(c.cfg); err != nil {
		return err
	}
	g.known = newCapabilities(g)
	sources := collect.SourcesOptions{Queue: c.queue(), Origin: g.cfg.URL, Every: g.cfg.Jobs.Every}
	if g.tells() {
		sources.Boards = c.store
	}
	g.sources = collect.NewSources(sources)
	if w := g.cfg.Webhook; w != nil {
		g.hook = g.receiver(w.Secret)
	}
	c.gitlab = g
	if g.cfg.Route == nil {
		return nil
	}
	return g.makeRoute()
}

// newGitLabClient is a client for what a configuration names.
func newGitLabClient(cfg *config.Config) (*gitlab.Client, error) {
	g := cfg.GitLab
	o := gitlab.Options{URL: g.URL, CAFile: g.CAFile, PerMinute: g.Jobs.PerMin}
	if !g.APIToken.IsZero() {
		o.Token = reveal(g.APIToken)
	}
	for i := range cfg.Pools {
		if p := &cfg.Pools[i]; p.Mode != config.ModeOrchestrate && (p.Capability.Protected || p.CapabilityFromGitLab()) {
			o.ProtectedRefs = true
		}
	}
	client, err := gitlab.New(o)
	if err != nil {
		return nil, fmt.Errorf("gitlab: %w", err)
	}
	return client, nil
}

// reveal reads a secret anew for each use, so that it can be replaced under us.
func reveal(from config.SecretSource) func() (string, error) {
	return func() (string, error) {
		secret, err := from.Read()
		return secret.Reveal(), err
	}
}

func (g *gitLab) makeRoute() (err error) {
	c, r := g.c, g.cfg.Route
	bindings, err := g.bindings(c.pools)
	if err != nil {
		return err
	}
	g.tokens = route.NewTokens(bindings)
	g.contacts = route.NewContacts(c.store, c.cfg.ReplicaName(), g.contactEvents())
	g.contacts.SilentAfter(c.cfg.Timeouts.Silent)
	dial, err := c.peerCredentials()
	if err != nil {
		return err
	}
	held := r.HoldPerToken
	if g.cfg.Jobs.Scope != "none" {
		held = 0 // the lists tell which jobs wait
	}
	g.holds = newHolds()
	for _, pools := range bindings {
		for i := range pools {
			c.metrics.AddRouted(pools[i].Name)
		}
	}
	g.desk, err = jobrouter.NewDesk(jobrouter.Options{
		Leases: c.store, Book: c.store, GitLab: g.client, Tokens: g.tokens, Contacts: g.contacts, Facts: c.store, Admit: c.opt.Admit, Events: g.deskEvents(),
		Replica: c.cfg.ReplicaName(), Advertise: r.Advertise, Dial: []grpc.DialOption{dial},
		LongPoll: r.LongPoll, RatePerToken: r.RatePerToken, HoldPerToken: held, Fronted: r.Front,
	})
	if err != nil {
		return fmt.Errorf("gitlab.route: %w", err)
	}
	if g.discovery, err = jobrouter.NewDiscovery(r.ServerURL, g.tokens, g.desk.Draining); err != nil {
		return fmt.Errorf("gitlab.route.server_url: %w", err)
	}
	g.tunnel = jobrouter.NewTunnel(g.tokens)
	g.tunneled = g.routerServer(nil)
	if !r.Front {
		return nil
	}
	return g.makeProxy()
}

// routerServer is a gRPC server with the Job Router protocol.
func (g *gitLab) routerServer(tls *tls.Config) *grpc.Server {
	return server.NewGRPCServer(
		server.GRPCOptions{TLS: tls, MaxMessageBytes: jobrouter.MaxMessageBytes, Panicked: g.c.panicked, Also: jobrouter.ServerOptions(tls)},
		jobrouter.NewService(g.desk).Register)
}

func (g *gitLab) makeProxy() error {
	to, err := url.Parse(g.cfg.URL)
	if err != nil {
		return fmt.Errorf("gitlab.url: %w", err)
	}
	trust, err := server.ClientTLS(config.TLS{CAFile: g.cfg.CAFile}, "")
	if err != nil {
		return fmt.Errorf("gitlab.ca_file: %w", err)
	}
	o := frontproxy.Options{
		GitLab: to, Transport: frontproxy.NewTransport(trust), Tokens: g.tokens, Contacts: g.contacts, Book: g.c.store,
		Keep: g.client.KeepPending, Discovery: g.discovery, Fingerprint: g.fingerprint, Events: g.proxyEvents(),
		Fail: g.client.FailJob, Admit: g.c.opt.Admit, Take: g.desk.Take, Offer: g.desk.Offer,
		Turn: g.turn, Asking: g.desk.Asking,
	}
	if g.proxy, err = frontproxy.New(o); err != nil {
		return fmt.Errorf("gitlab.route: %w", err)
	}
	return nil
}

// fingerprint is what a runner token's jobs may be, in one hash.
func (g *gitLab) fingerprint(token string) string {
	_, pools, ok := g.tokens.Lookup(token)
	if !ok {
		return ""
	}
	return pools[0].Capability.Fingerprint().String()
}

// bindings are the pools of route mode by their runners' token.
func (g *gitLab) bindings(pools []spillway.Pool) (map[string][]spillway.Pool, error) {
	of := map[string][]spillway.Pool{}
	var errs []error
	for i := range g.c.cfg.Pools {
		p := &g.c.cfg.Pools[i]
		if p.Mode != config.ModeRoute {
			continue
		}
		secret, err := p.GitLab.Token.Read()
		if err != nil {
			errs = append(errs, fmt.Errorf("pools[%d].gitlab.token: %w", i, err))
			continue
		}
		of[secret.Reveal()] = append(of[secret.Reveal()], pools[i])
	}
	return of, errors.Join(errs...)
}

// peerCredentials are for other replicas, which have a certificate as ours.
func (c *ControlPlane) peerCredentials() (grpc.DialOption, error) {
	if !c.cfg.Listen.TLS.Enabled() {
		return grpc.WithTransportCredentials(insecure.NewCredentials()), nil
	}
	config, err := c.peerTLS()
	if err != nil {
		return nil, err
	}
	return grpc.WithTransportCredentials(tlsfiles.Credentials(config, "")), nil
}

// heard tells every replica what a webhook says; the one that asks GitLab takes it in.
func (g *gitLab) heard(ctx context.Context, e webhook.Event) error {
	sighting, ok := collect.HookSighting(g.cfg.URL, e, time.Now())
	if !ok {
		return nil
	}
	err := collect.Tell(ctx, g.c.store, sighting)
	if err == nil && g.desk != nil && sighting.State.Terminal() {
		_, err = g.c.store.EndRouted(ctx, sighting.Job.ID) // on one path nothing else tells of ends
	}
	if err == nil && g.desk != nil && sighting.State == spillway.Pending {
		err = g.c.store.PublishFact(ctx, hastenTopic, nil)
	}
	return err
}

// hastenTopic is where replicas tell each other that GitLab has a job to give out:
// whoever polls it asks at once.
const hastenTopic = "gitlab/hasten"

func (g *gitLab) hasten(ctx context.Context) {
	for ctx.Err() == nil {
		told, err := g.c.store.Facts(ctx, hastenTopic)
		if err != nil {
			if ctx.Err() == nil {
				g.c.log.Warn("jobs of webhooks are asked for a second later for now", "error", err)
			}
			pause(ctx, pokesRetry)
			continue
		}
		for range told {
			g.desk.Hasten()
		}
	}
}

// run runs what serves and asks, until ctx ends.
func (g *gitLab) run(ctx context.Context, wg *sync.WaitGroup) {
	wg.Go(func() { g.known.run(ctx) })
	wg.Go(func() { g.hooks.run(ctx) })
	wg.Go(func() { g.reportSources(ctx) })
	if g.exporters != nil {
		wg.Go(func() { g.exporters.Run(ctx) })
	}
	if g.desk != nil {
		wg.Go(func() { g.hasten(ctx) })
	}
}

// serve runs what runners are connected to. It outlives run: on a stop runners are
// sent to GitLab first.
func (g *gitLab) serve(ctx context.Context, fail func(error) error) error {
	if g.desk == nil {
		return nil
	}
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { errs[0] = g.desk.Run(ctx) })
	wg.Go(func() { errs[1] = g.contacts.Run(ctx) })
	if g.proxy != nil {
		wg.Go(func() { _ = g.proxy.Run(ctx) }) // it ends with ctx only
	}
	wg.Go(func() { _ = g.tunneled.Serve(g.tunnel) }) // it ends when it is stopped
	<-ctx.Done()
	_ = g.tunnel.Close()
	g.tunneled.Stop()
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil && !errors.Is(err, context.Canceled) {
		return fail(err)
	}
	return nil
}

// drain sends the runners to GitLab, which they ask themselves while we are away.
func (g *gitLab) drain() {
	if g.desk == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainGrace)
	defer cancel()
	if err := g.desk.Drain(ctx); err != nil {
		g.c.log.Warn("runners were cut off, and ask GitLab themselves after a while", "error", err)
	}
}

// demand is the waiting jobs of every source.
func (c *ControlPlane) demand() scaler.Demand {
	if c.gitlab != nil {
		return c.gitlab.sources
	}
	return c.queue()
}
