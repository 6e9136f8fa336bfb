package config

import (
	"fmt"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// MaxWeight bounds a weight: what counts a thousand times as much decides alone.
const MaxWeight = 1_000.0

// DefaultSpillAfter waits for no pool: an instance that boots costs a job a minute, which
// a free one of another pool doesn't. More is for pools so much better that a job had
// rather wait.
const DefaultSpillAfter = 0 * time.Second

// Router is how places are chosen for the jobs of Spillway's own queue.
type Router struct {
	SpillAfter time.Duration `yaml:"spill_after"` // of pools that say nothing else
	Weights    Weights       `yaml:"weights"`
}

// Weights are router.Weights.
type Weights struct {
	Cost         float64 `yaml:"cost"`
	History      float64 `yaml:"history"`
	Affinity     float64 `yaml:"affinity"`
	AntiAffinity float64 `yaml:"anti_affinity"`
	Topology     float64 `yaml:"topology"`
}

func defaultRouter() Router {
	return Router{SpillAfter: DefaultSpillAfter, Weights: Weights(router.DefaultWeights())}
}

// RouterWeights are the weights as the router knows them.
func (c *Config) RouterWeights() *router.Weights {
	w := router.Weights(c.Router.Weights)
	return &w
}

func (v *validator) router() {
	r := &v.config.Router
	v.spillAfter(r.SpillAfter, "router.spill_after")
	for _, w := range []struct {
		name  string
		value float64
	}{
		{"cost", r.Weights.Cost},
		{"history", r.Weights.History},
		{"affinity", r.Weights.Affinity},
		{"anti_affinity", r.Weights.AntiAffinity},
		{"topology", r.Weights.Topology},
	} {
		v.need(w.value >= 0 && w.value <= MaxWeight, "router.weights."+w.name, "%g is out of range; use 0 (leave it out) to %g", w.value, MaxWeight)
	}
}

// spills fills in the pools' spill_after and looks for what can't be meant.
func (v *validator) spills() {
	c := v.config
	times := map[time.Duration]bool{}
	for i := range c.Pools {
		p, at := &c.Pools[i], fmt.Sprintf("pools[%d].spill_after", i)
		switch {
		case p.Mode == ModeObserve:
			v.need(p.SpillAfter == 0, at, "jobs of this pool don't wait here: GitLab holds them; remove it, or use mode route or orchestrate")
		case p.Mode == ModeRoute && (c.GitLab == nil || c.GitLab.Jobs.Scope == "none"):
			v.need(p.SpillAfter == 0, at, "without gitlab.api_token nobody knows how long GitLab's jobs have waited; remove it, or add the token")
		case v.at[at] == nil:
			p.SpillAfter = c.Router.SpillAfter
		default:
			v.spillAfter(p.SpillAfter, at)
		}
		if p.SpillAfter > 0 {
			times[p.SpillAfter] = true
		}
	}
	v.need(len(times) <= router.MaxSpillTimes, "pools", "%d different times of spill_after, at most %d are allowed", len(times), router.MaxSpillTimes)
}

func (v *validator) spillAfter(d time.Duration, at string) {
	v.need(d == 0 || d >= router.RemotePatience && d <= spillway.MaxSpillAfter, at,
		"%s is out of range; use 0s (not at all), or %s to %s", d, router.RemotePatience, spillway.MaxSpillAfter)
}
