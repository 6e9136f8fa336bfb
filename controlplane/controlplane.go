package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	admissions "github.com/spillway-ci/spillway/admission/session"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/coordinator"
	"github.com/spillway-ci/spillway/gitlab/jobrouter"
	"github.com/spillway-ci/spillway/ingress"
	coordinatorpb "github.com/spillway-ci/spillway/proto/coordinator"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/providers"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/server"
	"github.com/spillway-ci/spillway/store"
)

// Settings of the listeners, as errors and Addr name them.
const (
	Runners = "listen.runners"
	API     = "listen.api"
	Metrics = "listen.metrics"
	GitLab  = "listen.gitlab"
	// JobRouter is where GitLab Runners ask for jobs.
	JobRouter = "listen.job_router"
)

// Times of an orderly end.
const (
	stopGrace  = 3 * time.Second // for calls under way
	closeGrace = 8 * time.Second // for the plugins, which may have processes to end
)

// Options are what a configuration does not say.
type Options struct {
	Log     *slog.Logger
	Version string
	// ProviderConfig may change what a provider is configured with, once the
	// runners' address is known; nil leaves it as configured.
	ProviderConfig func(provider string, configured []byte, runners string) ([]byte, error)
	// Admit is asked before a job of GitLab goes to a runner in route mode; nil admits
	// every job.
	Admit jobrouter.Admit
	// Scaler and Session are told what happens, besides log and metrics.
	Scaler  scaler.Events
	Session session.Events
}

// ControlPlane is one replica.
type ControlPlane struct {
	cfg     *config.Config
	opt     Options
	log     *slog.Logger
	pools   []spillway.Pool               // as the configuration had them at the start
	poolSet *poolSet                      // as they are now, with those of others
	shown   map[string]bool               // pools with metrics; poolsChanged's
	rules   atomic.Pointer[config.Config] // whose policies are in force: that of the last reload
	store   *store.Store
	metrics *server.Metrics
	host    *providers.Host
	plugins map[string]*providers.Plugin

	dispatcher  *session.Dispatcher
	jobs        *session.Jobs
	coordinator *coordinator.Server
	reviewer    *admissions.Reviewer // nil: no admission controller is configured
	bound       *server.Bound
	events      scaler.Events
	leases      *scaler.Leases
	loop        *scaler.Loop
	scaled      map[string]*scaler.Pool // of the loop, by name
	polls       *scaler.Polls           // of metrics; nil = none
	notices     *notices
	gitlab      *gitLab // nil: there is none
	ingress     *ingress.Service
	cells       *cellLinks // nil: this control plane is alone

	certificates *server.Certificates
	guard        *access.Guard // of listen.api
	audit        access.Audit
	auditFile    *access.File // nil: the audit is in the log
}

// New makes everything ready and listens, but serves nothing before Run. After an
// error nothing is left.
func New(ctx context.Context, cfg *config.Config, opt Options) (*ControlPlane, error) {
	c := &ControlPlane{cfg: cfg, opt: opt, log: opt.Log, pools: cfg.SpillwayPools(), plugins: map[string]*providers.Plugin{}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.rules.Store(cfg)
	c.metrics = server.NewMetrics(opt.Version)
	for i := range c.pools {
		c.metrics.AddPool(c.pools[i])
	}
	for name := range cfg.Providers {
		c.metrics.AddProvider(name)
	}
	c.certificates = server.NewCertificates(c.log, c.metrics)
	c.events = c.scalerEvents()
	for _, step := range []func(context.Context) error{c.makeAccess, c.openStore, c.makeAdmission, c.makeRouter, c.makeCoordinator, c.makeCells, c.makeGitLab, c.makeIngress, c.listen, c.openPlugins, c.makeScaler} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

// Addr is where the listener of that setting really listens.
func (c *ControlPlane) Addr(setting string) string { return c.bound.Addr(setting).String() }

// Run serves until ctx ends or something fails that it can't go on without. Then
// it stops deciding, closes the plugins, ends the streams and closes the store.
func (c *ControlPlane) Run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()

	var serve errgroup.Group
	serve.Go(func() error { return c.orFail(fail, c.bound.Serve(serving, stopGrace)) })
	serve.Go(func() error {
		err := c.dispatcher.Run(serving)
		if serving.Err() != nil {
			err = nil
		}
		return c.orFail(fail, err)
	})
	if c.reviewer != nil {
		serve.Go(func() error { return c.orFail(fail, c.review(serving)) })
	}
	if c.gitlab != nil {
		serve.Go(func() error { return c.gitlab.serve(serving, func(err error) error { return c.orFail(fail, err) }) })
	}
	var decide sync.WaitGroup
	c.leases.Renew(ctx, time.Now())
	decide.Go(func() { c.leases.Run(ctx, c.loop.Run) })
	decide.Go(func() { c.followPokes(ctx) })
	decide.Go(func() { c.certificates.Run(ctx) })
	decide.Go(func() { c.followTokens(ctx) })
	decide.Go(func() { c.followPriorities(ctx) })
	decide.Go(func() { c.ingress.Run(ctx) })
	decide.Go(func() { c.coordinator.Run(ctx) })
	decide.Go(func() { c.dispatcher.ShareExperience(ctx, c.store) })
	c.runCells(ctx, &decide)
	if c.polls != nil {
		decide.Go(func() { c.polls.Run(ctx) })
	}
	if c.gitlab != nil {
		c.gitlab.run(ctx, &decide)
	} else {
		decide.Go(func() { c.reportFeeds(ctx) })
	}
	c.watchInterruptions(ctx, &decide)

	<-ctx.Done()
	c.ingress.Close()
	if c.gitlab != nil {
		c.gitlab.drain()
	}
	decide.Wait()
	err := c.closePlugins()
	stopServing()
	err = errors.Join(err, serve.Wait(), c.store.Close(), c.auditFile.Close())
	c.store, c.host = nil, nil
	return err
}

// orFail ends the run when a part of it has failed.
func (c *ControlPlane) orFail(fail context.CancelCauseFunc, err error) error {
	if err != nil {
		fail(err)
	}
	return err
}

// close takes down what New had made before it failed.
func (c *ControlPlane) close() error {
	err := c.closePlugins()
	if c.bound != nil {
		err = errors.Join(err, c.bound.Close())
	}
	if c.store != nil {
		err = errors.Join(err, c.store.Close())
	}
	return errors.Join(err, c.auditFile.Close())
}

func (c *ControlPlane) openStore(ctx context.Context) error {
	r := c.cfg.Store.Redis
	var err error
	if r == nil {
		c.store, err = store.OpenEmbedded()
		return err
	}
	opt := store.Options{Addrs: r.Addrs, Username: r.Username, Database: r.Database, Cluster: r.Cluster}
	if opt.Password, err = password(r.Password()); err != nil {
		return fmt.Errorf("store.redis: password: %w", err)
	}
	if s := r.Sentinel; s != nil {
		opt.MasterName, opt.SentinelUsername = s.MasterName, s.Username
		if opt.SentinelPassword, err = password(s.Password()); err != nil {
			return fmt.Errorf("store.redis.sentinel: password: %w", err)
		}
	}
	if r.TLS != nil {
		files, err := c.certificates.Open("store.redis.tls", r.TLS.TLS)
		if err != nil {
			return err
		}
		opt.TLS = func() *tls.Config { return files.Client(r.TLS.ServerName) }
	}
	c.store, err = store.Open(ctx, opt)
	return err
}

// password reads one that need not be set.
func password(src config.SecretSource) (string, error) {
	if src.IsZero() {
		return "", nil
	}
	secret, err := src.Read()
	if err != nil {
		return "", err
	}
	return secret.Reveal(), nil
}

func (c *ControlPlane) makeRouter(context.Context) (err error) {
	t := c.cfg.Timeouts
	c.dispatcher, err = session.NewDispatcher(c.store, session.Options{
		Replica: c.cfg.ReplicaName(), Pools: c.pools,
		Timeouts:       router.Timeouts{Pending: t.Pending, Unmatched: t.Unmatched, Assigned: t.Assign},
		HeartbeatEvery: t.HeartbeatEvery, SilentAfter: t.Silent, Grace: min(t.Silent, session.DefaultGrace),
		Weights: c.cfg.RouterWeights(), Admission: c.admission(), AloneFor: c.cellTiming().AloneFor(),
		Events: c.sessionEvents(),
	})
	if err != nil {
		return err
	}
	c.poolSet = newPoolSet(c.poolsChanged)
	return c.poolSet.replace(configPart, c.pools)
}

// listen takes the addresses before anything is started that has to know them.
func (c *ControlPlane) listen(ctx context.Context) error {
	auth, err := c.tokens()
	if err != nil {
		return err
	}
	apiTLS, err := c.apiTLS()
	if err != nil {
		return err
	}
	serving := append(session.ServerOptions(), c.certified()...)
	if apiTLS != nil {
		serving = append(serving, session.SecureOptions()...)
	}
	runners := server.NewGRPCServer(server.GRPCOptions{TLS: apiTLS, Panicked: c.panicked, Also: serving},
		func(r grpc.ServiceRegistrar) {
			runnerv1.RegisterRunnerServiceServer(r, session.NewRunners(c.dispatcher, auth))
		})
	api := server.NewGRPCServer(server.GRPCOptions{TLS: apiTLS, MaxMessageBytes: maxAPIMessageBytes, Reflection: true, Panicked: c.panicked, Also: c.guarded()},
		func(r grpc.ServiceRegistrar) {
			jobsv1.RegisterJobServiceServer(r, c.jobs)
			coordinatorpb.RegisterPoolCoordinatorServer(r, c.coordinator)
			adminv1.RegisterAdminServiceServer(r, server.NewAdmin(c.sources()))
			cellsv1.RegisterCellServiceServer(r, c.cellService())
			admissionv1.RegisterAdmissionServiceServer(r, admissions.NewService(c.reviewer))
			debugv1.RegisterDebugServiceServer(r, c.ingress)
		})
	if err := access.DefaultRules().Complete(api.GetServiceInfo()); err != nil {
		return err
	}
	pages := server.NewHTTPHandler(c.metrics, []server.Check{{Name: "store", Run: c.pingStore}, {Name: "plugins", Run: c.pluginsReady}})
	l := c.cfg.Listen
	pagesTLS, err := c.pagesTLS()
	if err != nil {
		return err
	}
	endpoints := []server.Endpoint{
		server.GRPC(Runners, l.Runners, runners), server.GRPC(API, l.API, api), server.HTTP(Metrics, l.Metrics, pages, pagesTLS),
	}
	if l.GitLab != "" {
		endpoints = append(endpoints, server.Streaming(GitLab, l.GitLab, c.gitlab, pagesTLS))
	}
	if l.JobRouter != "" {
		endpoints = append(endpoints, server.GRPC(JobRouter, l.JobRouter, c.gitlab.routerServer(pagesTLS)))
	}
	debug, err := c.debugEndpoints()
	if err != nil {
		return err
	}
	c.bound, err = server.Listen(ctx, append(endpoints, debug...)...)
	return err
}

// tokens reads the runner tokens of the pools.
func (c *ControlPlane) tokens() (*session.Tokens, error) {
	pools := map[string]spillway.Pool{}
	var errs []error
	for i := range c.cfg.Pools {
		src := c.cfg.Pools[i].RunnerToken
		if src.IsZero() {
			continue // no runner can register with this pool
		}
		secret, err := src.Read()
		if err != nil {
			errs = append(errs, fmt.Errorf("pools[%d].runner_token: %w", i, err))
			continue
		}
		for token := range strings.FieldsSeq(secret.Reveal()) { // one, or while it is replaced the new one and the old one
			pools[token] = c.pools[i]
		}
	}
	return session.NewTokens(pools), errors.Join(errs...)
}

func (c *ControlPlane) poke() {
	if c.loop != nil {
		c.loop.Poke()
	}
}

// pokesRetry is when somebody listens again who could not.
const pokesRetry = time.Second

// followPokes wakes the scaler when any replica's queue has grown.
func (c *ControlPlane) followPokes(ctx context.Context) {
	for ctx.Err() == nil {
		pokes, err := c.store.Pokes(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.log.Warn("not listening for pokes for now: the scaler looks at each tick only", "error", err)
			}
			pause(ctx, pokesRetry)
			continue
		}
		for range pokes {
			c.loop.Poke()
		}
	}
}

func (c *ControlPlane) pingStore(ctx context.Context) error { return c.store.Ping(ctx) }

func (c *ControlPlane) pluginsReady(context.Context) error {
	for _, s := range c.host.States() {
		if s.Phase != providers.Ready {
			return errors.New(s.String())
		}
	}
	return nil
}

func (c *ControlPlane) panicked(method string, value any, stack []byte) {
	c.log.Error("a call panicked", "method", method, "value", fmt.Sprint(value), "stack", string(stack))
}
