package gcemig

import (
	"context"
	"strconv"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// ListInstances implements pluginsdk.Provider. A managed instance that has no VM yet
// is not listed: it does not exist and costs nothing, and is part of desired only.
func (p *Provider) ListInstances(ctx context.Context, id string) ([]pluginsdk.Instance, error) {
	s, g, err := p.find(id)
	if err != nil {
		return nil, err
	}
	managed, err := g.managed(ctx, g.name)
	if err != nil {
		return nil, err
	}
	existing := existing(managed)
	details, err := s.details(ctx, g, existing)
	if err != nil {
		return nil, err
	}
	list := make([]pluginsdk.Instance, len(existing))
	for i, m := range existing {
		d := details[m.GetId()]
		list[i] = pluginsdk.Instance{
			ID:         instanceID(m),
			State:      state(m.GetCurrentAction(), m.GetInstanceStatus()),
			LaunchedAt: d.launchedAt,
			Zone:       after(m.GetInstance(), "zones"),
			Address:    d.address,
			Spot:       d.spot,
			Unhealthy:  unhealthy(m),
			Kept:       d.kept,
		}
	}
	return list, nil
}

// existing is those of the managed instances that have a VM.
func existing(managed []*computepb.ManagedInstance) []*computepb.ManagedInstance {
	var list []*computepb.ManagedInstance
	for _, m := range managed {
		if m.GetId() != 0 {
			list = append(list, m)
		}
	}
	return list
}

// instanceID is the VM's number. A recreated instance keeps its name and gets
// another number, and it is another machine that must register anew.
func instanceID(m *computepb.ManagedInstance) string { return strconv.FormatUint(m.GetId(), 10) }

// state maps what the group is doing with the instance and, where that is nothing
// that moves it, the VM's own state. Actions and states that no decision could use
// are unknown, which counts as running and busy.
func state(action, own string) pluginsdk.InstanceState {
	switch action {
	case "DELETING":
		return pluginsdk.StateDeleting
	case "RECREATING":
		// The id is the old VM's until it is gone, and the new one's from then on.
		if own == "PENDING" || own == "PROVISIONING" || own == "STAGING" {
			return pluginsdk.StateCreating
		}
		return pluginsdk.StateDeleting
	case "CREATING", "CREATING_WITHOUT_RETRIES", "STARTING", "RESUMING":
		if own == "STOPPING" || own == "DEPROVISIONING" {
			return pluginsdk.StateDeleting
		}
		return pluginsdk.StateCreating
	case "NONE", "VERIFYING", "REFRESHING":
	default: // ABANDONING, RESTARTING, STOPPING, SUSPENDING, …
		return pluginsdk.StateUnknown
	}
	switch own {
	case "RUNNING":
		return pluginsdk.StateRunning
	case "PENDING", "PROVISIONING", "STAGING":
		return pluginsdk.StateCreating
	case "DEPROVISIONING", "PENDING_STOP", "STOPPING": // preempted, or ended by somebody
		return pluginsdk.StateDeleting
	default: // TERMINATED, STOPPED, SUSPENDED, REPAIRING, …
		return pluginsdk.StateUnknown
	}
}

// unhealthy reports whether a health check says so, or the VM was stopped under the
// group.
func unhealthy(m *computepb.ManagedInstance) bool {
	for _, check := range m.GetInstanceHealth() {
		if h := check.GetDetailedHealthState(); h == "UNHEALTHY" || h == "TIMEOUT" {
			return true
		}
	}
	own := m.GetInstanceStatus()
	return own == "TERMINATED" || own == "STOPPED"
}

// last is the last part of a resource's URL: its name.
func last(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

// after is the part of a resource's URL that follows a collection.
func after(url, collection string) string {
	_, rest, _ := strings.Cut("/"+url, "/"+collection+"/")
	name, _, _ := strings.Cut(rest, "/")
	return name
}
