package migstub

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// selfLinks is what the URLs in resources begin with, wherever the API was asked.
const selfLinks = "https://www.googleapis.com" + basePath

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000-07:00") }

func idText(id uint64) string { return strconv.FormatUint(id, 10) }

func (c *Cloud) path(rest string) string { return "projects/" + c.project + "/" + rest }

func (c *Cloud) link(rest string) string { return selfLinks + c.path(rest) }

func (c *Cloud) instancePath(zone, name string) string {
	return c.path("zones/" + zone + "/instances/" + name)
}

// place is where the group is, as a part of a path.
func (g *group) place() string { return place(g.Zone, g.Region) }

func place(zone, region string) string {
	switch {
	case zone != "":
		return "zones/" + zone
	case region != "":
		return "regions/" + region
	default:
		return "global"
	}
}

func (c *Cloud) templateLink(g *group) string {
	return c.link("global/instanceTemplates/" + g.Template.Name)
}

// placeLink is the link of a zone or a region; none if there is none.
func (c *Cloud) placeLink(collection, name string) string {
	if name == "" {
		return ""
	}
	return c.link(collection + "/" + name)
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func (c *Cloud) renderGroup(now time.Time, g *group) groupResource {
	r := groupResource{
		Kind: "compute#instanceGroupManager", ID: idText(g.id), CreationTimestamp: stamp(g.createdAt), Name: g.Name,
		Zone: c.placeLink("zones", g.Zone), Region: c.placeLink("regions", g.Region),
		InstanceTemplate: c.templateLink(g),
		Versions: []groupVersion{{
			Name: "0", InstanceTemplate: c.templateLink(g), TargetSize: fixedOrNumber{Calculated: g.target},
		}},
		InstanceGroup:       c.link(g.place() + "/instanceGroups/" + g.Name),
		BaseInstanceName:    g.BaseInstanceName,
		Fingerprint:         fingerprint(g.revision),
		CurrentActions:      g.actions(now),
		TargetSize:          g.target,
		TargetSuspendedSize: g.Suspended, TargetStoppedSize: g.Stopped,
		SelfLink:     c.link(g.place() + "/instanceGroupManagers/" + g.Name),
		UpdatePolicy: g.renderUpdatePolicy(),
		InstanceLifecyclePolicy: lifecyclePolicy{
			DefaultActionOnFailure: or(g.Lifecycle.DefaultActionOnFailure, "REPAIR"),
			OnFailedHealthCheck:    or(g.Lifecycle.OnFailedHealthCheck, "DEFAULT_ACTION"),
			ForceUpdateOnRepair:    or(g.Lifecycle.ForceUpdateOnRepair, "NO"),
		},
		ListManagedInstancesResults: "PAGELESS",
	}
	if g.Paginated {
		r.ListManagedInstancesResults = "PAGINATED"
	}
	r.Status = groupStatus{
		IsStable: g.stable(now), VersionTarget: versionTarget{IsReached: !g.Outdated},
		Stateful: stateful{HasStatefulConfig: len(g.StatefulDisks) > 0},
	}
	c.renderOptions(g, &r)
	return r
}

// renderInstanceGroup is the part of a managed group that load balancers see.
func (c *Cloud) renderInstanceGroup(now time.Time, g *group) instanceGroupResource {
	r := instanceGroupResource{
		Kind: "compute#instanceGroup", ID: idText(g.id + 3), CreationTimestamp: stamp(g.createdAt), Name: g.Name,
		Zone: c.placeLink("zones", g.Zone), Region: c.placeLink("regions", g.Region),
		SelfLink: c.link(g.place() + "/instanceGroups/" + g.Name),
	}
	for _, m := range g.members {
		if m.vm != nil && m.vm.exists(now) {
			r.Size++
		}
	}
	return r
}

// renderOptions adds what a group has only if it is configured.
func (c *Cloud) renderOptions(g *group, r *groupResource) {
	if g.Autoscaler != nil {
		r.Status.Autoscaler = c.link(g.place() + "/autoscalers/" + or(g.Autoscaler.Name, g.Name))
	}
	if g.Region != "" {
		r.DistributionPolicy = &distributionPolicy{TargetShape: or(string(g.TargetShape), string(ShapeEven))}
		for _, z := range g.zones() {
			r.DistributionPolicy.Zones = append(r.DistributionPolicy.Zones, zoneConfiguration{c.link("zones/" + z)})
		}
	}
	if g.Autohealing != nil {
		r.AutoHealingPolicies = []autoHealingPolicy{{
			HealthCheck:     c.healthCheck(g),
			InitialDelaySec: int(g.Autohealing.InitialDelay.Seconds()),
		}}
	}
	if len(g.StatefulDisks) > 0 {
		r.StatefulPolicy = &statefulPolicy{preservedPolicy{make(map[string]preservedDisk)}}
		for _, d := range g.StatefulDisks {
			r.StatefulPolicy.PreservedState.Disks[d] = preservedDisk{AutoDelete: "NEVER"}
		}
	}
	if len(g.Labels) > 0 {
		r.AllInstancesConfig = &allInstancesConfig{propertiesPatch{maps.Clone(g.Labels)}}
		r.Status.AllInstancesConfig = &allInstancesEffective{Effective: true, CurrentRevision: stamp(g.createdAt)}
	}
}

func (c *Cloud) healthCheck(g *group) string {
	return c.link("global/healthChecks/" + or(g.Autohealing.HealthCheck, "runner"))
}

func (g *group) renderUpdatePolicy() updatePolicy {
	p := updatePolicy{
		Type:                        or(g.UpdatePolicy.Type, "OPPORTUNISTIC"),
		MinimalAction:               or(g.UpdatePolicy.MinimalAction, "REPLACE"),
		ReplacementMethod:           or(g.UpdatePolicy.ReplacementMethod, "SUBSTITUTE"),
		MostDisruptiveAllowedAction: or(g.UpdatePolicy.MostDisruptiveAllowed, "REPLACE"),
		MaxSurge:                    fixedOrNumber{g.UpdatePolicy.MaxSurge, g.UpdatePolicy.MaxSurge},
		MaxUnavailable:              fixedOrNumber{g.UpdatePolicy.MaxUnavailable, g.UpdatePolicy.MaxUnavailable},
	}
	if g.Region != "" {
		p.InstanceRedistributionType = or(g.UpdatePolicy.InstanceRedistributionType, "PROACTIVE")
	}
	return p
}

// fingerprint is bytes in base64 that change with each write.
func fingerprint(revision uint64) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, revision^0x5b11a5b11a))
}

func (g *group) actions(now time.Time) (s actionsSummary) {
	counts := map[string]*int{
		actNone: &s.None, actCreating: &s.Creating, actRecreating: &s.Recreating,
		actDeleting: &s.Deleting, actVerifying: &s.Verifying,
	}
	for _, m := range g.members {
		*counts[g.actionOf(m, now)]++
	}
	return s
}

func (c *Cloud) renderMember(now time.Time, g *group, m *member) managedResource {
	r := managedResource{
		Instance: selfLinks + c.instancePath(m.zone, m.name), Name: m.name, CurrentAction: g.actionOf(m, now),
		TargetStatus: "RUNNING", Version: managedVersion{Name: "0", InstanceTemplate: c.templateLink(g)},
	}
	if m.action == actDeleting {
		r.TargetStatus = "DELETED"
	}
	if m.vm != nil {
		r.ID, r.InstanceStatus = m.vm.idText(), m.vm.status(now)
		if g.Autohealing != nil && r.InstanceStatus == "RUNNING" {
			r.InstanceHealth = []instanceHealth{{HealthCheck: c.healthCheck(g), DetailedHealthState: health(m.vm)}}
		}
	}
	if m.lastErr != nil {
		r.LastAttempt = &lastAttempt{resourceErrors{[]resourceError{{m.lastErr.code, m.lastErr.message}}}}
	}
	return r
}

func health(vm *machine) string {
	if vm.ready {
		return "HEALTHY"
	}
	return "UNKNOWN" // no probe was answered yet
}

func (c *Cloud) renderFailure(g *group, f failure) managedError {
	return managedError{
		Error: resourceError{f.code, f.message},
		InstanceActionDetails: actionDetails{
			Action: f.action, Instance: selfLinks + c.instancePath(f.zone, f.instance),
			Version: managedVersion{Name: "0", InstanceTemplate: c.templateLink(g)},
		},
		Timestamp: stamp(f.at),
	}
}

func (c *Cloud) renderOperation(now time.Time, op *operation) operationResource {
	r := operationResource{
		Kind: "compute#operation", ID: idText(op.id), Name: op.name,
		Zone: c.placeLink("zones", op.zone), Region: c.placeLink("regions", op.region),
		OperationType: op.kind, TargetLink: selfLinks + op.target, TargetID: idText(op.targetID),
		Status: op.status(now), User: "user@example.com", InsertTime: stamp(op.insertedAt),
		SelfLink: c.link(place(op.zone, op.region) + "/operations/" + op.name),
	}
	if op.system {
		r.User = "system"
	}
	if r.Status != "PENDING" {
		r.StartTime = stamp(op.startedAt)
	}
	if op.done {
		r.Progress, r.EndTime = 100, stamp(op.doneAt)
	}
	if op.errCode != "" {
		r.Error = &resourceErrors{[]resourceError{{op.errCode, op.errMessage}}}
		r.HTTPErrorStatusCode, r.HTTPErrorMessage = http.StatusBadRequest, "BAD REQUEST"
	}
	return r
}

func (g *group) scheduling() scheduling {
	t := g.Template
	s := scheduling{OnHostMaintenance: t.OnHostMaintenance, AutomaticRestart: true, ProvisioningModel: "STANDARD"}
	if t.Spot || t.Preemptible {
		s.AutomaticRestart, s.Preemptible = false, true
	}
	if t.Spot {
		s.ProvisioningModel, s.InstanceTerminationAction = "SPOT", "STOP"
	}
	return s
}

func (c *Cloud) renderInstance(now time.Time, vm *machine) instanceResource {
	g := vm.group
	labels := maps.Clone(g.Template.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	maps.Copy(labels, g.Labels)
	return instanceResource{
		Kind: "compute#instance", ID: vm.idText(), CreationTimestamp: stamp(vm.createdAt), Name: vm.name,
		LastStartTimestamp: stamp(vm.launchedAt),
		Zone:               c.link("zones/" + vm.zone), MachineType: c.link("zones/" + vm.zone + "/machineTypes/" + g.Template.MachineType),
		Status: vm.status(now), Labels: labels,
		// How an instance knows its group.
		Metadata:          instanceMetadata{"compute#metadata", []metadataItem{{"created-by", c.path(g.place() + "/instanceGroupManagers/" + g.Name)}}},
		Scheduling:        g.scheduling(),
		NetworkInterfaces: []networkInterface{{"compute#networkInterface", "nic0", vm.networkIP()}},
		SelfLink:          selfLinks + c.instancePath(vm.zone, vm.name),
	}
}

func (c *Cloud) renderAutoscaler(g *group) autoscalerResource {
	a := g.Autoscaler
	name := or(a.Name, g.Name)
	return autoscalerResource{
		Kind: "compute#autoscaler", ID: idText(g.id + 1), CreationTimestamp: stamp(g.createdAt), Name: name,
		Zone: c.placeLink("zones", g.Zone), Region: c.placeLink("regions", g.Region),
		Target:            c.link(g.place() + "/instanceGroupManagers/" + g.Name),
		AutoscalingPolicy: autoscalingPolicy{MinNumReplicas: a.Min, MaxNumReplicas: a.Max, Mode: or(a.Mode, "ON")},
		RecommendedSize:   a.Recommended, Status: "ACTIVE",
		SelfLink: c.link(g.place() + "/autoscalers/" + name),
	}
}

func (c *Cloud) renderTemplate(g *group) templateResource {
	return templateResource{
		Kind: "compute#instanceTemplate", ID: idText(g.id + 2), CreationTimestamp: stamp(g.createdAt), Name: g.Template.Name,
		Properties: templateProperties{MachineType: g.Template.MachineType, Labels: maps.Clone(g.Template.Labels), Scheduling: g.scheduling()},
		SelfLink:   c.templateLink(g),
	}
}
