package demand_test

import (
	"slices"

	"github.com/spillway-ci/spillway"
)

// match is the rule of the architecture page, spelled out again so that these
// tests don't depend on the router.
func match(c *spillway.Capability, r *spillway.Requirement) (bool, string) {
	switch {
	case c.Protected && !r.Protected:
		return false, "protected"
	case !c.RunUntagged && len(r.Tags) == 0:
		return false, "untagged"
	case slices.ContainsFunc(r.Tags, func(t string) bool { return !slices.Contains(c.Tags, t) }):
		return false, "tags"
	case c.Type == spillway.ProjectType && !slices.Contains(c.Projects, r.Project):
		return false, "scope"
	case r.Resources.MemoryMiB > c.Resources.MemoryMiB:
		return false, "resources"
	}
	return true, ""
}
