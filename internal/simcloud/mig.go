package simcloud

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway/internal/migstub"
	"github.com/spillway-ci/spillway/internal/sim"
	"github.com/spillway-ci/spillway/providers/gcemig"
	"github.com/spillway-ci/spillway/scaler"
)

// Where the groups are.
const (
	migZone   = "europe-west1-b"
	migRegion = "europe-west1"
)

// MIGOptions is what no story can say of groups.
type MIGOptions struct {
	// Group changes a group before it is made; nil = as the story says.
	Group func(*migstub.GroupConfig)
	// Regional groups have instances in three zones.
	Regional bool
}

// MIG is a managed instance group for each pool on internal/migstub, each in a
// project of its own, and providers/gcemig in front of them. It is for one run.
type MIG struct {
	Stubs map[string]*migstub.Cloud // by pool

	options MIGOptions
	now     func() time.Time
	start   time.Time
	deeds   deeds
	early   []func() // deeds that were planned before the start
	tokens  tokens
}

// NewMIG is without groups.
func NewMIG(o MIGOptions) *MIG { return &MIG{options: o, Stubs: make(map[string]*migstub.Cloud)} }

// At plans what somebody else does, so long after the start of the story.
func (m *MIG) At(d time.Duration, do func()) {
	if m.now == nil {
		m.early = append(m.early, func() { m.At(d, do) })
		return
	}
	m.deeds.plan(m.start.Add(d), do)
}

// Cloud makes the group of one pool; it is a [sim.NewCloud].
func (m *MIG) Cloud(s sim.Setup) (sim.Cloud, error) {
	config, faults, err := migConfig(s.Pool, s.Config)
	switch {
	case err != nil:
		return nil, err
	case m.Stubs[s.Pool] != nil:
		return nil, errSecondRun
	}
	g := &migGroup{account: m, setup: s, name: s.Pool, id: s.Pool}
	if g.births, err = newBirths(s.Config); err != nil {
		return nil, err
	}
	config.Zone = migZone
	if m.options.Regional {
		config.Zone, config.Region = "", migRegion
		g.id = "regions/" + migRegion + "/" + g.name
	}
	if m.options.Group != nil {
		m.options.Group(&config)
	}
	g.stub = migstub.New(migstub.Options{Now: s.Now, Seed: s.Seed, Faults: faults})
	g.stub.Busy, g.stub.Observe = s.Busy, g.changed
	g.stub.AddGroup(config)
	for _, in := range g.stub.Existing(g.name) {
		g.births.add(in.ID)
	}
	m.Stubs[g.name] = g.stub
	m.open(s)
	return g, nil
}

func (m *MIG) open(s sim.Setup) {
	if m.now != nil {
		return
	}
	m.now, m.start = s.Now, s.Now()
	for _, plan := range m.early {
		plan()
	}
}

// runDeeds lets others do what is due.
func (m *MIG) runDeeds(now time.Time) {
	for {
		do, ok := m.deeds.take(now)
		if !ok {
			return
		}
		do()
	}
}

func (g *migGroup) Connect(ctx context.Context) (scaler.Group, error) {
	raw, err := json.Marshal(map[string]any{
		"project": migstub.DefaultProject, "zone": migZone, "endpoint": "http://127.0.0.1:1", "groups": []string{g.id},
	})
	if err != nil {
		return nil, fmt.Errorf("the configuration of the plugin: %w", err)
	}
	p := gcemig.NewAt(g.account.now, migWire{g})
	if err := p.Configure(ctx, raw); err != nil {
		return nil, err
	}
	return &plugin{provider: p, group: g.id, tokens: &g.account.tokens, status: alone(p)}, nil
}

// migCauses are the stand-in's causes in the words of the simulation.
var migCauses = map[migstub.Cause]sim.Cause{
	migstub.ByName: sim.ByName, migstub.ByScaleIn: sim.ByScaleIn, migstub.ByRepair: sim.ByHealth,
	migstub.Interruption: sim.Interruption, migstub.Maintenance: sim.Interruption,
}

func migCause(c migstub.Cause) sim.Cause { return cmp.Or(migCauses[c], sim.BySomebody) }
