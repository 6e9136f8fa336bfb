package gcemig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
)

const (
	// detailsAge is how long labels may be out of date in a list [time]. A write reads
	// them anew.
	detailsAge = time.Minute
	// maxPrefixes bounds the prefixes of names that a filter names: a group has one,
	// unless somebody creates instances with names of their own.
	maxPrefixes = 10
)

// detail is what only the VM itself tells.
type detail struct {
	launchedAt time.Time
	address    string // in its own network; empty = none yet
	spot       bool
	kept       bool
	owner      string
}

// details is what is known of the instances, by id. It costs no call while all of
// them were read within detailsAge.
func (s *session) details(ctx context.Context, g *group, list []*computepb.ManagedInstance) (map[uint64]detail, error) {
	now := s.now()
	g.memory.Lock()
	known, at := g.memory.details, g.memory.detailsAt
	g.memory.Unlock()
	if now.Sub(at) < detailsAge && !slices.ContainsFunc(list, func(m *computepb.ManagedInstance) bool {
		_, ok := known[m.GetId()]
		return !ok
	}) {
		return known, nil
	}
	fresh, err := s.readDetails(ctx, list)
	if err != nil {
		return nil, err
	}
	g.memory.Lock()
	g.memory.details, g.memory.detailsAt = fresh, now // never changed in place: others read it
	g.memory.owner = s.labelledOwner(fresh)
	g.memory.Unlock()
	return fresh, nil
}

// readDetails costs one list for each zone that has instances of the group. One that
// is not in it is gone already, or so new that lists don't know it.
func (s *session) readDetails(ctx context.Context, list []*computepb.ManagedInstance) (map[uint64]detail, error) {
	wanted := make(map[uint64]bool, len(list))
	zones := make(map[string][]string) // names of instances
	for _, m := range list {
		wanted[m.GetId()] = true
		zone := after(m.GetInstance(), "zones")
		zones[zone] = append(zones[zone], last(m.GetInstance()))
	}
	details := make(map[uint64]detail, len(list))
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		vms, err := s.listVMs(ctx, zone, filterFor(zones[zone]))
		if err != nil {
			return nil, err
		}
		for _, vm := range vms {
			if wanted[vm.GetId()] {
				details[vm.GetId()] = detailOf(vm)
			}
		}
	}
	return details, nil
}

func (c *clients) listVMs(ctx context.Context, zone, filter string) ([]*computepb.Instance, error) {
	ctx, release := c.paced.bind(ctx)
	defer release()
	request := &computepb.ListInstancesRequest{Project: c.project, Zone: zone}
	if filter != "" {
		request.Filter = &filter
	}
	return all(c, maxInstancesRead, c.vms.List(ctx, request).Next)
}

// filterFor is a filter that all the names pass, and few others in the project: a
// regular expression over their prefixes ("eq" in the description of the parameter
// filter); "" = no filter.
func filterFor(names []string) string {
	prefixes := make(map[string]bool)
	for _, name := range names {
		i := strings.LastIndexByte(name, '-')
		if i < 0 {
			return ""
		}
		prefixes[name[:i+1]] = true
	}
	if len(prefixes) > maxPrefixes {
		return ""
	}
	return fmt.Sprintf(`name eq "(%s).*"`, strings.Join(slices.Sorted(maps.Keys(prefixes)), "|"))
}

func detailOf(vm *computepb.Instance) detail {
	launchedAt, _ := time.Parse(time.RFC3339, vm.GetCreationTimestamp()) // not known: zero
	_, kept := vm.GetLabels()[keepLabel]
	return detail{
		launchedAt: launchedAt.UTC(),
		address:    addressOf(vm),
		// The older kind of spot instance is only preemptible.
		spot:  vm.GetScheduling().GetProvisioningModel() == "SPOT" || vm.GetScheduling().GetPreemptible(),
		kept:  kept,
		owner: vm.GetLabels()[ownerLabel],
	}
}

// addressOf is the address in the VM's own network. The first interface is the
// primary one (networkInterfaces[].networkIP of the resource Instance).
func addressOf(vm *computepb.Instance) string {
	if len(vm.GetNetworkInterfaces()) == 0 {
		return ""
	}
	first := vm.GetNetworkInterfaces()[0]
	return cmp.Or(first.GetNetworkIP(), first.GetIpv6Address())
}
