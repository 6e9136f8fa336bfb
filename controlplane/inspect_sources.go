package controlplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// poolsAtOnce is of how many pools metrics and counts are asked at a time.
	poolsAtOnce = 16
	// probeTimeout bounds the questions to one pool's runners [time]: those that don't
	// answer take seconds each.
	probeTimeout = 30 * time.Second
)

// surroundings is what a configuration names besides plugins: secrets, GitLab, runners'
// metrics, Prometheus servers. Nothing of it is changed.
type surroundings struct {
	cfg *config.Config

	mu struct {
		sync.Mutex
		found []Finding
	}
}

// place is the setting that a finding is about.
type place struct{ pool, setting string }

func in(p *config.Pool, setting string) place { return place{p.Name, setting} }

func (i *surroundings) add(code string, severity pluginsdk.Severity, at place, fix, format string, args ...any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.found = append(i.mu.found, Finding{
		Pool: at.pool, Setting: at.setting, Code: code, Severity: severity, Message: fmt.Sprintf(format, args...), Fix: fix,
	})
}

// look looks at everything, the slow side by side.
func (i *surroundings) look(ctx context.Context) []Finding {
	i.secrets()
	var wg sync.WaitGroup
	if i.cfg.GitLab != nil {
		wg.Go(func() { i.gitlab(ctx) })
	}
	var pools errgroup.Group
	pools.SetLimit(poolsAtOnce)
	for n := range i.cfg.Pools {
		p := &i.cfg.Pools[n]
		pools.Go(func() error { i.count(ctx, p); return nil })
		pools.Go(func() error { i.metrics(ctx, p); return nil })
	}
	_ = pools.Wait() // they return none
	wg.Wait()
	return i.mu.found
}

// secrets reads every secret that the control plane would read.
func (i *surroundings) secrets() {
	if r := i.cfg.Store.Redis; r != nil {
		i.secret(place{setting: "store.redis.password"}, r.Password())
		if r.Sentinel != nil {
			i.secret(place{setting: "store.redis.sentinel.password"}, r.Sentinel.Password())
		}
	}
	if g := i.cfg.GitLab; g != nil {
		i.secret(place{setting: "gitlab.api_token"}, g.APIToken)
		if g.Webhook != nil {
			i.secret(place{setting: "gitlab.webhook.secret"}, g.Webhook.Secret)
		}
	}
	if k := i.cfg.Cells; k != nil {
		for n := range k.Peers {
			i.secret(place{setting: peerSetting(n, "token")}, k.Peers[n].Token)
		}
	}
	for n := range i.cfg.Pools {
		p := &i.cfg.Pools[n]
		i.secret(in(p, "runner_token"), p.RunnerToken)
		if p.GitLab != nil {
			i.secret(in(p, "gitlab.token"), p.GitLab.Token)
		}
		if p.Count != nil && p.Count.Prometheus != nil {
			i.secret(in(p, "count.prometheus.token"), p.Count.Prometheus.Token)
		}
	}
}

func peerSetting(peer int, setting string) string {
	return fmt.Sprintf("cells.peers[%d].%s", peer, setting)
}

func (i *surroundings) secret(at place, from config.SecretSource) {
	if from.IsZero() {
		return
	}
	if _, err := from.Read(); err != nil {
		i.add("secret_unreadable", pluginsdk.FindingError, at, "put the secret there, or correct the setting", "%v", err)
	}
}

// readable reports whether there is a secret.
func readable(from config.SecretSource) bool {
	_, err := from.Read()
	return err == nil
}

// count asks for a pool's count once.
func (i *surroundings) count(ctx context.Context, p *config.Pool) {
	if p.Count == nil || p.Count.Prometheus == nil {
		return
	}
	from := p.Count.Prometheus
	if !from.Token.IsZero() && !readable(from.Token) {
		return // said already
	}
	query, err := newPrometheus(from)
	if err == nil {
		_, err = query.Count(ctx)
	}
	if err != nil {
		i.add("count_unusable", pluginsdk.FindingError, in(p, "count.prometheus"), "see the message", "%v", err)
	}
}

func newPrometheus(from *config.Prometheus) (*collect.Prometheus, error) {
	o := collect.PrometheusOptions{URL: from.URL, Query: from.Query, CAFile: from.CAFile}
	if !from.Token.IsZero() {
		o.Token = reveal(from.Token)
	}
	return collect.NewPrometheus(o)
}

// metrics asks each runner of a pool that the configuration names. Those of other pools
// are known once the group's instances are.
func (i *surroundings) metrics(ctx context.Context, p *config.Pool) {
	if p.Mode == config.ModeOrchestrate || p.Observe.Metrics == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	got, err := collect.Probe(ctx, exporterPool(p.Observe.Metrics))
	at := in(p, "observe.metrics")
	if err != nil {
		i.add("metrics_unusable", pluginsdk.FindingError, at, "see the message", "%v", err)
		return
	}
	away, wrong := map[string]*collect.ScrapeError{}, map[string]*collect.ScrapeError{}
	for instance, failed := range got.Failed {
		switch failed.Reason {
		case collect.ScrapeUnreachable, collect.ScrapeTimeout:
			away[instance] = failed
		default:
			wrong[instance] = failed
		}
	}
	if len(away) > 0 {
		i.add("metrics_unreachable", pluginsdk.FindingWarning, at, "let the control plane reach the runner's listen_address, if the instance runs",
			"%s", firstOf(away, got.Asked))
	}
	if len(wrong) > 0 {
		i.add("metrics_unusable", pluginsdk.FindingError, at, "see the message", "%s", firstOf(wrong, got.Asked))
	}
}

// firstOf is the sentence of the first instance, and how many there are.
func firstOf(failed map[string]*collect.ScrapeError, asked int) string {
	first := slices.Min(slices.Collect(maps.Keys(failed)))
	return fmt.Sprintf("%d of %d instances: %s: %s", len(failed), asked, first, failed[first])
}

func exporterPool(m *config.RunnerMetrics) collect.ExporterPool {
	return collect.ExporterPool{
		Every: m.Every, Port: m.Port, Path: m.Path, TLS: m.TLS, CAFile: m.CAFile, Targets: m.Targets, TargetsFile: m.File,
	}
}
