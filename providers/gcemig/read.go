package gcemig

import (
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func notFound(name string) error {
	return pluginsdk.Errorf(pluginsdk.KindNotFound, "there is no managed instance group %q here, or it is not configured", name)
}

// status is the group in Spillway's words; group is nil if there is none. A group
// whose limit Google has raised is at least as large as it is.
func status(name string, group *computepb.InstanceGroupManager, maxSize int) pluginsdk.GroupStatus {
	if group == nil {
		return pluginsdk.GroupStatus{Group: name, Err: notFound(name)}
	}
	desired := int(group.GetTargetSize())
	return pluginsdk.GroupStatus{
		Group:        name,
		Desired:      desired,
		Max:          max(maxSize, desired),
		InTransition: !group.GetStatus().GetIsStable(),
	}
}

// instance is one managed instance in Spillway's words. Its id is its name, which
// is what the instance itself knows and what a write would name.
func instance(m *computepb.ManagedInstance) pluginsdk.Instance {
	return pluginsdk.Instance{
		ID:        last(m.GetInstance()),
		State:     state(m.GetCurrentAction(), m.GetInstanceStatus()),
		Zone:      after(m.GetInstance(), "zones"),
		Unhealthy: unhealthy(m),
	}
}

// state maps what the group is doing with the instance and, where that is nothing
// that moves it, the instance's own state. Actions and states that no decision
// could use are unknown, which counts as running and busy.
func state(action, own string) pluginsdk.InstanceState {
	switch action {
	case "CREATING", "CREATING_WITHOUT_RETRIES", "RECREATING":
		return pluginsdk.StateCreating
	case "DELETING":
		return pluginsdk.StateDeleting
	case "NONE", "VERIFYING", "REFRESHING":
	default: // ABANDONING, RESTARTING, STOPPING, SUSPENDING, …
		return pluginsdk.StateUnknown
	}
	switch own {
	case "RUNNING":
		return pluginsdk.StateRunning
	case "PENDING", "PROVISIONING", "STAGING":
		return pluginsdk.StateCreating
	case "DEPROVISIONING":
		return pluginsdk.StateDeleting
	default: // TERMINATED by preemption, SUSPENDED, REPAIRING, …
		return pluginsdk.StateUnknown
	}
}

// unhealthy reports whether a health check says so, or the instance was stopped
// under the group.
func unhealthy(m *computepb.ManagedInstance) bool {
	for _, check := range m.GetInstanceHealth() {
		if check.GetDetailedHealthState() == "UNHEALTHY" || check.GetDetailedHealthState() == "TIMEOUT" {
			return true
		}
	}
	return m.GetInstanceStatus() == "TERMINATED"
}

// last is the last part of a resource's URL: its name.
func last(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

// after is the part of a resource's URL that follows a collection.
func after(url, collection string) string {
	_, rest, _ := strings.Cut(url, "/"+collection+"/")
	name, _, _ := strings.Cut(rest, "/")
	return name
}
