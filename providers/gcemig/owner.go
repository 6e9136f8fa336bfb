package gcemig

import (
	"cmp"

	"cloud.google.com/go/compute/apiv1/computepb"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Labels. A group has none itself: its owner is a label that it gives to all its
// instances (allInstancesConfig), or that they have from their template.
const (
	ownerLabel = "spillway-owner"
	keepLabel  = "spillway-keep" // on an instance, with any value
)

// ownerOf is whom the group says it belongs to; "" = nobody, as far as is known: what
// a template says shows only on instances that were listed.
func (g *group) ownerOf(igm *computepb.InstanceGroupManager) string {
	g.memory.Lock()
	defer g.memory.Unlock()
	return cmp.Or(igm.GetAllInstancesConfig().GetProperties().GetLabels()[ownerLabel], g.memory.owner)
}

// foreign is the refusal to write to a group that is somebody else's; nil otherwise.
func (s *session) foreign(g *group, igm *computepb.InstanceGroupManager) *pluginsdk.Error {
	return s.foreignOwner(g.ownerOf(igm))
}

func (s *session) foreignOwner(owner string) *pluginsdk.Error {
	if s.owner == "" || owner == "" || owner == s.owner {
		return nil
	}
	return pluginsdk.Errorf(pluginsdk.KindInvalid, "it belongs to %s %q, and this provider is %q", ownerLabel, owner, s.owner)
}

// labelledOwner is the owner that instances are labelled with: another one, if any is.
func (s *session) labelledOwner(details map[uint64]detail) string {
	own, others := "", ""
	for _, d := range details {
		switch {
		case d.owner == "":
		case d.owner == s.owner:
			own = d.owner
		case others == "" || d.owner < others:
			others = d.owner
		}
	}
	return cmp.Or(others, own)
}
