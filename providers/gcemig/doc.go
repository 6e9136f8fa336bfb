// Package gcemig is the provider for Google Compute Engine's managed instance groups,
// zonal and regional, of one project.
//
// # Groups
//
// A group is named NAME, and is then in the zone or region of the configuration, or
// zones/ZONE/NAME or regions/REGION/NAME. A managed instance group has no bounds of its
// own: min is 0 and max what Google allows (1000 instances in a zonal one, 2000 in one
// that is regional or lists in pages). That a group is not stable is told and stops
// nothing.
//
// # Instances
//
// An instance's id is the VM's number, not its name: a group that repairs, replaces or
// reports an instance as unhealthy makes another VM of the same name, which is another
// instance. On the VM the number is what the metadata server says at
// computeMetadata/v1/instance/id; the agent must be given that as its instance id.
// Managed instances that have no VM yet are part of desired and are not listed.
//
// # Writes
//
// The group is made larger by resize, after a look at its target size, and smaller only
// by deleteInstances: a resize would let the group choose. Withdraw deletes the managed
// instances that have no VM. Each write has a request id made from its token, and is
// confirmed when its operation is done, which is when its actions are scheduled; one
// that is not confirmed within about 3 seconds is transient, and the host lists.
// Nothing is ever repeated. There is no compare-and-set.
//
// deleteInstances and recreateInstances name instances by their names. They are sent
// for numbers that were listed just before; should the group replace a VM between the
// two, the new one is hit. The window is one round trip.
//
// # Autoscalers
//
// A group with an autoscaler that is on is a finding and no halt: writes are sent, and
// the autoscaler overrules them with the next look that it takes. Whether one is
// attached is known from each status, but not its mode, and one that is off does no harm.
//
// # Labels
//
// spillway-owner on the group's instances (its all-instances configuration, or the
// instance template) names whose it is: where the configuration has an owner and the
// label another, nothing is written. An instance with the label spillway-keep is never
// deleted or recreated.
//
// # Notices
//
// Watch tells of instances that Google has taken back, from the zone's operations, every
// 15 seconds. The notice 30 seconds before, and those of maintenance, are on the
// metadata server of the VM, where the agent reads them.
//
// # Permissions
//
// Credentials come from where every Google Cloud program takes them (Application Default
// Credentials). A custom role for the project needs, and needs no more than:
//
//	compute.instanceGroupManagers.list    Status, Findings, Watch
//	compute.instanceGroupManagers.get     ListInstances, errors, each write
//	compute.instanceGroupManagers.update  SetDesired, Remove, Withdraw, ReportUnhealthy
//	compute.instances.list                ListInstances, Remove, ReportUnhealthy
//	compute.zoneOperations.get            each write to a zonal group
//	compute.regionOperations.get          each write to a regional group
//	compute.zoneOperations.list           Watch
//	compute.autoscalers.get               Findings
//
// Shadow mode does without update and the two operations' get. The VMs are made and
// deleted by Google's own service agent, not by this plugin's account.
package gcemig
