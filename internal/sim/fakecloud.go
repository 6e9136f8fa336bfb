package sim

import (
	"context"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
	"github.com/spillway-ci/spillway/scaler"
)

// FakeCloud is the cloud of providers/fake. It does all that a story can ask for.
func FakeCloud(s Setup) (Cloud, error) {
	c := &fakeCloud{Cloud: fake.NewCloud(s.Config, s.Now(), s.Seed), min: s.Config.Min}
	c.Busy = s.Busy
	c.Observe = func(ch fake.Change) { s.Observe(changeOf(ch)) }
	c.plugin = fakePlugin{cloud: c.Cloud, now: s.Now, pool: s.Pool}
	return c, nil
}

type fakeCloud struct {
	*fake.Cloud
	plugin fakePlugin
	min    int
}

// Connect implements Cloud: this plugin remembers nothing anyway.
func (c *fakeCloud) Connect(context.Context) (scaler.Group, error) { return c.plugin, nil }

func (c *fakeCloud) Min() int { return c.min }

func (c *fakeCloud) Existing() []Instance {
	alive := c.Cloud.Existing()
	out := make([]Instance, len(alive))
	for i, in := range alive {
		out[i] = Instance{ID: in.ID, LaunchedAt: in.LaunchedAt, Registers: in.Registers, Doomed: !in.Interrupted.IsZero(), Ending: in.Ending()}
	}
	return out
}

func changeOf(ch fake.Change) Change {
	kinds := map[fake.ChangeKind]ChangeKind{fake.Launched: Launched, fake.Ready: Ready, fake.Held: Held, fake.Ended: Ended}
	return Change{At: ch.At, Kind: kinds[ch.Kind], ID: ch.ID, Registers: ch.Registers, Cause: Cause(ch.Cause)}
}

// fakePlugin is the cloud as its plugin shows it.
type fakePlugin struct {
	cloud *fake.Cloud
	now   func() time.Time
	pool  string
}

var _ scaler.Group = fakePlugin{}

func (p fakePlugin) Status(context.Context) (pluginsdk.GroupStatus, error) {
	st := p.cloud.Status(p.now())
	st.Group = p.pool
	return st, nil
}

func (p fakePlugin) ListInstances(context.Context) ([]pluginsdk.Instance, error) {
	return p.cloud.List(p.now()), nil
}

func (p fakePlugin) SetDesired(_ context.Context, target, expected int) (int, error) {
	return p.cloud.SetDesired(p.now(), target, expected)
}

func (p fakePlugin) Remove(_ context.Context, ids []string) ([]pluginsdk.RemoveResult, error) {
	return p.cloud.Remove(p.now(), ids)
}

func (p fakePlugin) Withdraw(_ context.Context, expected int) (pluginsdk.WithdrawResult, error) {
	return p.cloud.Withdraw(p.now(), expected)
}

func (p fakePlugin) CompleteHook(_ context.Context, ids []string) error {
	return p.cloud.CompleteHook(p.now(), ids)
}

func (p fakePlugin) ReportUnhealthy(_ context.Context, ids []string) error {
	return p.cloud.ReportUnhealthy(p.now(), ids)
}
