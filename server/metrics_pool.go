package server

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/spillway-ci/spillway"
)

// poolCollector shows the gauges and the decisions of pools. They are kept as values
// and written at each scrape, so that one pool's numbers are of one moment, a pool
// that was removed cannot come back by a late observation, and a number of a
// thousand pools' takes its 8 bytes rather than a series' half kilobyte.
type poolCollector struct {
	info    *prometheus.Desc
	gauges  []poolGauge
	idle    *prometheus.Desc
	runners *prometheus.Desc
	success *prometheus.Desc
	decided *prometheus.Desc

	mu struct {
		sync.Mutex
		pools map[string]*poolSample
	}
}

type poolSample struct {
	status  PoolStatus
	runners int // machines connected to this replica

	decisions []uint64 // by place in verdicts
}

// poolGauge is one number of a pool.
type poolGauge struct {
	desc  *prometheus.Desc
	value func(*PoolStatus) int
}

func newPoolCollector() *poolCollector {
	about := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"pool"}, labels...), nil)
	}
	number := func(name, help string, value func(*PoolStatus) int) poolGauge {
		return poolGauge{about("spillway_pool_"+name, help), value}
	}
	c := &poolCollector{
		info: about("spillway_pool_info", "1, with what a pool is as labels.", "provider", "fingerprint"),
		gauges: []poolGauge{
			number("pending_jobs", "Pending jobs attributed to the pool.", func(p *PoolStatus) int { return p.Pending }),
			number("running_jobs", "Jobs that run in the pool.", func(p *PoolStatus) int { return p.Running }),
			number("desired_instances", "What the provider's group was asked for.", func(p *PoolStatus) int { return p.Desired }),
			number("in_service_instances", "Instances that take jobs.", func(p *PoolStatus) int { return p.InService }),
			number("idle_instances", "Instances that take jobs and have none.", func(p *PoolStatus) int { return p.Idle }),
			number("booting_instances", "Instances that were launched and have not registered.", func(p *PoolStatus) int { return p.Booting }),
			number("draining_instances", "Instances that are given no more jobs.", func(p *PoolStatus) int { return p.Draining }),
			number("lost_instances", "Instances that are silent, interrupted or failed to boot.", func(p *PoolStatus) int { return p.Lost }),
			number("min_instances", "The pool's lower bound.", func(p *PoolStatus) int { return p.Min }),
			number("max_instances", "The pool's upper bound.", func(p *PoolStatus) int { return p.Max }),
			number("held_bool", "1 while the pool's number is held.", func(p *PoolStatus) int {
				if p.Hold == "" {
					return 0
				}
				return 1
			}),
		},
		idle:    prometheus.NewDesc("gitlab_runner_pool_idle_count", "Idle runner instances of the pool.", []string{"pool_name"}, nil),
		runners: about("spillway_runners_connected", "Machines of the pool that are connected to this replica."),
		success: about("spillway_last_successful_reconcile_timestamp_seconds", "When the pool was last reconciled completely. Absent until then."),
		decided: newDecisionsDesc(),
	}
	c.mu.pools = map[string]*poolSample{}
	return c
}

func (c *poolCollector) add(pool spillway.Pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.mu.pools[pool.Name]; s != nil {
		s.status.Pool = pool
		return
	}
	c.mu.pools[pool.Name] = &poolSample{status: PoolStatus{Pool: pool}, decisions: make([]uint64, len(verdicts))}
}

// remove forgets a pool; also is done under the same lock.
func (c *poolCollector) remove(name string, also func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.pools, name)
	also()
}

// change changes a pool that is known, under the lock; others it leaves unknown.
func (c *poolCollector) change(name string, change func(*poolSample)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.mu.pools[name]; s != nil {
		change(s)
	}
}

// Describe implements prometheus.Collector.
func (c *poolCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range c.gauges {
		ch <- g.desc
	}
	ch <- c.info
	ch <- c.idle
	ch <- c.runners
	ch <- c.success
	ch <- c.decided
}

// Collect implements prometheus.Collector.
func (c *poolCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.samples() {
		p := &s.status
		name := p.Pool.Name
		labels := []*dto.LabelPair{label("pool", name)}
		send := func(desc *prometheus.Desc, value float64) {
			ch <- &reading{desc: desc, labels: labels, value: value}
		}
		for _, g := range c.gauges {
			send(g.desc, float64(g.value(p)))
		}
		send(c.runners, float64(s.runners))
		if !p.LastSuccess.IsZero() { // 0 would be a time, long ago
			send(c.success, seconds(p.LastSuccess))
		}
		collectDecisions(ch, c.decided, labels[0], s.decisions)
		fingerprint := p.Pool.Capability.Fingerprint().Short()
		ch <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, name, p.Pool.Provider, fingerprint)
		ch <- prometheus.MustNewConstMetric(c.idle, prometheus.GaugeValue, float64(p.Idle), name)
	}
}

// samples copies, so that a slow scraper does not hold up a pool's loop.
func (c *poolCollector) samples() []poolSample {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]poolSample, 0, len(c.mu.pools))
	for _, s := range c.mu.pools {
		sample := *s
		sample.decisions = slices.Clone(s.decisions)
		all = append(all, sample)
	}
	return all
}

// seconds is a time as metrics have it.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
