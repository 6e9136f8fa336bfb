package simcloud

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/sim"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/ec2asg"
	"github.com/spillway-ci/spillway/scaler"
)

// ASGOptions is what no story can say of an account.
type ASGOptions struct {
	// Group changes a group before it is made; nil = as the story says.
	Group func(*asgstub.GroupConfig)
	// Settings are added to the provider's configuration.
	Settings map[string]any
	// Faults are those of calls about several groups.
	Faults asgstub.Faults
	// OneProcess: all pools have one plugin process, as pools of one account have, and
	// a look at one of them is a look at all. Without it each pool has its own, which
	// can crash alone.
	OneProcess bool
}

// errSecondRun is the answer to a second story on one cloud.
var errSecondRun = errors.New("a cloud is for one run of a story")

// ASG is an AWS account: an Auto Scaling group for each pool on internal/asgstub,
// and providers/ec2asg in front of them. It is for one run.
type ASG struct {
	Stub *asgstub.Cloud // from the first pool on

	options ASGOptions
	now     func() time.Time
	start   time.Time
	groups  map[string]*asgGroup
	deeds   deeds
	early   []func() // deeds that were planned before the start
	tokens  tokens
	shared  *process // with OneProcess
}

// NewASG is an account without groups.
func NewASG(o ASGOptions) *ASG { return &ASG{options: o, groups: make(map[string]*asgGroup)} }

// At plans what somebody else does, so long after the start of the story.
func (a *ASG) At(d time.Duration, do func()) {
	if a.Stub == nil {
		a.early = append(a.early, func() { a.At(d, do) })
		return
	}
	a.deeds.plan(a.start.Add(d), do)
}

// After plans what somebody else does, so long from now on.
func (a *ASG) After(d time.Duration, do func()) { a.deeds.plan(a.now().Add(d), do) }

// Cloud makes the group of one pool; it is a [sim.NewCloud].
func (a *ASG) Cloud(s sim.Setup) (sim.Cloud, error) {
	config, err := asgConfig(s.Pool, s.Config)
	switch {
	case err != nil:
		return nil, err
	case a.groups[s.Pool] != nil:
		return nil, errSecondRun
	}
	g := &asgGroup{account: a, setup: s, name: s.Pool}
	if g.births, err = newBirths(s.Config); err != nil {
		return nil, err
	}
	if a.options.Group != nil {
		a.options.Group(&config)
	}
	a.open(s)
	a.groups[g.name] = g
	a.Stub.AddGroup(config)
	for _, in := range a.Stub.Existing(g.name) {
		g.births.add(in.ID)
	}
	g.plan(s.Config)
	return g, nil
}

// open makes the account when its first pool comes.
func (a *ASG) open(s sim.Setup) {
	if a.Stub != nil {
		return
	}
	a.now, a.start = s.Now, s.Now()
	a.Stub = asgstub.New(asgstub.Options{Now: s.Now, Seed: s.Seed, Faults: a.options.Faults})
	a.Stub.Busy = func(id string) bool {
		g := a.groupOf(id)
		return g != nil && g.setup.Busy(id)
	}
	a.Stub.Observe = func(ch asgstub.Change) { a.groups[ch.Group].changed(ch) }
	for _, plan := range a.early {
		plan()
	}
}

func (a *ASG) groupOf(id string) *asgGroup {
	for _, g := range a.groups {
		if _, ok := g.births.nth[id]; ok {
			return g
		}
	}
	return nil
}

// advance lets everything happen that is due.
func (a *ASG) advance(now time.Time) {
	a.Stub.Advance(now)
	for {
		do, ok := a.deeds.take(now)
		if !ok {
			break
		}
		do()
		a.Stub.Advance(now)
	}
	for _, name := range slices.Sorted(maps.Keys(a.groups)) {
		a.groups[name].lookForHeld()
	}
}

// process is a plugin process.
type process struct {
	provider pluginsdk.Provider
	account  *ASG
	names    []string
	seenAt   time.Time
	seen     map[string]pluginsdk.GroupStatus // of the last look, that nobody has taken
}

// start starts a plugin process for groups: it remembers nothing.
func (a *ASG) startProcess(ctx context.Context, names ...string) (*process, error) {
	config := map[string]any{"region": asgstub.DefaultRegion, "endpoint": "http://aws.test", "groups": names}
	maps.Copy(config, a.options.Settings)
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("the configuration of the plugin: %w", err)
	}
	p := ec2asg.NewWith(ec2asg.Options{
		Now: a.now, HTTP: asgWire{a}, AccessKeyID: Spillway, SecretAccessKey: "of-the-stand-in",
	})
	if err := p.Configure(ctx, raw); err != nil {
		return nil, err
	}
	return &process{provider: p, account: a, names: names}, nil
}

// Who calls, in the log of the stand-in.
const (
	Spillway = "AKIASPILLWAY"
	Others   = "AKIASOMEBODY"
)

// status is a look at all groups of the process, as the host of plugins joins those
// of one moment: whoever comes first asks for all, and each answer is taken once.
func (p *process) status(ctx context.Context, group string) (pluginsdk.GroupStatus, error) {
	if st, ok := p.seen[group]; ok && p.seenAt.Equal(p.account.now()) {
		delete(p.seen, group)
		return st, st.Err
	}
	all, err := p.provider.Status(ctx, p.names)
	if err != nil {
		return pluginsdk.GroupStatus{}, err
	}
	p.seenAt, p.seen = p.account.now(), make(map[string]pluginsdk.GroupStatus, len(all))
	for _, st := range all {
		p.seen[st.Group] = st
	}
	delete(p.seen, group)
	return one(all, group)
}

// connect is the way of one pool to its group.
func (a *ASG) connect(ctx context.Context, name string) (scaler.Group, error) {
	if !a.options.OneProcess {
		p, err := a.startProcess(ctx, name)
		if err != nil {
			return nil, err
		}
		return &plugin{provider: p.provider, group: name, tokens: &a.tokens, status: alone(p.provider)}, nil
	}
	if a.shared == nil {
		p, err := a.startProcess(ctx, slices.Sorted(maps.Keys(a.groups))...)
		if err != nil {
			return nil, err
		}
		a.shared = p
	}
	return &plugin{provider: a.shared.provider, group: name, tokens: &a.tokens, status: a.shared.status}, nil
}

// Somebody makes a call of the Auto Scaling API with other credentials. One that
// fails is made again a second later.
func (a *ASG) Somebody(action string, args url.Values) {
	args.Set("Action", action)
	args.Set("Version", "2011-01-01")
	r, err := http.NewRequest(http.MethodPost, "http://aws.test/", strings.NewReader(args.Encode()))
	if err == nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+Others+"/20260101/"+asgstub.DefaultRegion+"/autoscaling/aws4_request")
		var answer *http.Response
		if answer, err = a.Stub.Client().Do(r); err == nil {
			err = answer.Body.Close()
			if err == nil && answer.StatusCode == http.StatusOK {
				return
			}
		}
	}
	a.After(time.Second, func() { a.Somebody(action, args) })
}

// causes are the stand-in's causes in the words of the simulation.
var asgCauses = map[asgstub.Cause]sim.Cause{
	asgstub.ByName: sim.ByName, asgstub.ByScaleIn: sim.ByScaleIn, asgstub.Interruption: sim.Interruption,
	asgstub.Unhealthy: sim.ByHealth, asgstub.Abandoned: sim.ByTimeout,
}

// asgCause is who ended an instance: whatever the group does of its own accord is
// somebody else's deed.
func asgCause(c asgstub.Cause) sim.Cause { return cmp.Or(asgCauses[c], sim.BySomebody) }
