package collect

import (
	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
)

// CapabilityOf is what a runner takes, by GitLab's word.
func CapabilityOf(origin string, r *gitlab.Runner) spillway.Capability {
	return declares(origin, r).Capability
}
