package ec2asg

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// idsPerCall is how many instances one call asks for: AWS takes 200 values of a
	// filter. A filter, and not InstanceIds, because one id that EC2 does not know
	// (yet) would be an error of the whole call there.
	// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html
	idsPerCall = 200
	// machineCallsPerLook bounds the calls of one look; the rest has its turn at the next.
	machineCallsPerLook = 10
	// machinesAge is how old a machine's tags may be; before a removal they are read
	// again in any case. Launch times do not change.
	machinesAge = 5 * time.Minute
	// unknownAge is how soon EC2 is asked again about an instance that it did not know.
	unknownAge = 5 * time.Second
	// machineTrouble is how long EC2 is left alone after a failure: the groups' numbers
	// must not wait for it.
	machineTrouble = 30 * time.Second
	// deniedAge is how soon something is tried again that we may not do.
	deniedAge = 15 * time.Minute
	// machineLife is how long a machine is remembered that nobody asks about.
	machineLife = time.Hour
	// maxMachinePages bounds the pages of one call: a page has an instance at least.
	maxMachinePages = idsPerCall + 1
)

// machine is what EC2 knows of an instance and Auto Scaling does not.
type machine struct {
	launchedAt time.Time // zero = not known
	address    string    // in its own network; empty = not known, or gone already
	spot       bool
	kept       bool // somebody has tagged it: do not touch
}

// machines remembers what EC2 said. Everything that it knows is an extra: without it
// an instance has no launch time and no tags, and the group is scaled all the same.
type machines struct {
	now      func() time.Time
	describe func(ctx context.Context, ids []string) (map[string]machine, error)
	mu       struct {
		sync.Mutex
		all     map[string]*record
		pruned  time.Time
		silent  time.Time // EC2 is not asked before
		trouble error     // why; nil after a success
	}
}

type record struct {
	machine
	known bool
	read  time.Time // last tried
	used  time.Time
}

func newMachines(now func() time.Time, describe func(context.Context, []string) (map[string]machine, error)) *machines {
	m := &machines{now: now, describe: describe}
	m.mu.all = map[string]*record{}
	return m
}

// get returns what is known, which may be nothing.
func (m *machines) get(id string) machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.mu.all[id]; r != nil {
		return r.machine
	}
	return machine{}
}

// learn asks about those that are not known, or not well enough any more. It has no
// error: see denied.
func (m *machines) learn(ctx context.Context, ids []string) {
	for some := range slices.Chunk(m.due(ids), idsPerCall) {
		if m.ask(ctx, some) != nil {
			return
		}
	}
}

// due are those to ask about now, the longest unasked first.
func (m *machines) due(ids []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.prune(now)
	var late []string
	for _, id := range ids {
		r := m.mu.all[id]
		if r == nil {
			r = &record{}
			m.mu.all[id] = r
		}
		r.used = now
		age := unknownAge
		if r.known {
			age = machinesAge
		}
		if r.read.IsZero() || now.Sub(r.read) >= age {
			late = append(late, id)
		}
	}
	if now.Before(m.mu.silent) {
		return nil
	}
	slices.SortStableFunc(late, func(a, b string) int { return m.mu.all[a].read.Compare(m.mu.all[b].read) })
	return late[:min(len(late), machineCallsPerLook*idsPerCall)]
}

// prune forgets machines that are long gone. It needs m.mu.
func (m *machines) prune(now time.Time) {
	if now.Sub(m.mu.pruned) < machineLife {
		return
	}
	m.mu.pruned = now
	for id, r := range m.mu.all {
		if now.Sub(r.used) >= machineLife {
			delete(m.mu.all, id)
		}
	}
}

// ask makes one call and keeps the answer.
func (m *machines) ask(ctx context.Context, ids []string) error {
	found, err := m.describe(ctx, ids)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if err != nil {
		m.mu.trouble, m.mu.silent = err, now.Add(machineTrouble)
		if denied(err) {
			m.mu.silent = now.Add(deniedAge)
		}
		return err
	}
	m.mu.trouble = nil
	for _, id := range ids {
		r := m.mu.all[id]
		if r == nil {
			r = &record{used: now}
			m.mu.all[id] = r
		}
		r.read = now
		if it, ok := found[id]; ok {
			r.machine, r.known = it, true
		}
	}
	return nil
}

// again asks about instances whatever is remembered, because something is about to
// be done to them: somebody may have tagged one a moment ago. Where we may not ask
// EC2, tags are nothing that we could obey, and the finding says so; any other
// failure is one of the call.
func (m *machines) again(ctx context.Context, ids []string) error {
	if m.denied() != nil && m.quiet() {
		return nil
	}
	for some := range slices.Chunk(ids, idsPerCall) {
		if err := m.ask(ctx, some); err != nil && !denied(err) {
			return err
		}
	}
	return nil
}

// askAgain is machines.again, as a part of a write.
func (s *session) askAgain(ctx context.Context, ids []string) error {
	return s.before(ctx, func(early context.Context) error { return s.machines.again(early, ids) })
}

// denied is the error if we may not ask EC2; nil if we may, or do not know.
func (m *machines) denied() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if denied(m.mu.trouble) {
		return m.mu.trouble
	}
	return nil
}

func (m *machines) quiet() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now().Before(m.mu.silent)
}

// describeMachines makes one call, with all its pages.
func (s *session) describeMachines(ctx context.Context, ids []string) (map[string]machine, error) {
	found := make(map[string]machine, len(ids))
	in := &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{{Name: aws.String("instance-id"), Values: ids}}}
	for range maxMachinePages {
		out, err := send(ctx, s, s.ec2.DescribeInstances, in)
		if err != nil {
			return nil, err
		}
		for i := range out.Reservations {
			for j := range out.Reservations[i].Instances {
				it := &out.Reservations[i].Instances[j]
				found[aws.ToString(it.InstanceId)] = machineOf(it)
			}
		}
		if aws.ToString(out.NextToken) == "" {
			return found, nil
		}
		in.NextToken = out.NextToken
	}
	return nil, pluginsdk.Errorf(pluginsdk.KindTransient, "more than %d pages for %d instances", maxMachinePages, len(ids))
}

func machineOf(it *ec2types.Instance) machine {
	return machine{
		launchedAt: aws.ToTime(it.LaunchTime),
		// privateIpAddress of API_Instance.html: the primary one, inside of the instance's
		// network, which is where the control plane is; a public one would be no shorter way.
		address: aws.ToString(it.PrivateIpAddress),
		spot:    it.InstanceLifecycle == ec2types.InstanceLifecycleTypeSpot,
		kept:    slices.ContainsFunc(it.Tags, func(t ec2types.Tag) bool { return aws.ToString(t.Key) == keepTag }),
	}
}
