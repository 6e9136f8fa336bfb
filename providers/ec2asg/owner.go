package ec2asg

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

// The tags that Spillway reads. It writes none: infrastructure as code does, when
// it makes the group, so that there is no moment without.
const (
	ownerTag = "spillway-owner" // of a group: the control plane that it belongs to
	keepTag  = "spillway-keep"  // of an instance, with any value: do not touch
)

// owner is whom the group's tag names; "" without the tag.
func owner(g *types.AutoScalingGroup) string {
	for _, tag := range g.Tags {
		if aws.ToString(tag.Key) == ownerTag {
			return aws.ToString(tag.Value)
		}
	}
	return ""
}

// foreignOwner is whom the group belongs to if that is not us. A group without the
// tag belongs to whoever names it in a configuration. One with the tag is not taken
// by a control plane that has no name.
func (s *session) foreignOwner(g *types.AutoScalingGroup) string {
	if who := owner(g); who != s.config.Owner {
		return who
	}
	return ""
}
