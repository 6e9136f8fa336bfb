package access

import (
	"slices"
	"strings"
)

// Role is a set of things that a caller may do. Roles do not contain each other:
// who may push and look has both.
type Role string

// The roles. Their texts are what the configuration has.
const (
	Read       Role = "read"       // ask for pools, demand, runners, decisions, jobs
	Push       Role = "push"       // push jobs, follow and cancel them
	Operate    Role = "operate"    // change priorities, retry quarantined jobs
	Debug      Role = "debug"      // reach into a running job's environment
	Admit      Role = "admit"      // answer whether a job may run
	Coordinate Role = "coordinate" // register pools and poll for jobs as their worker
	Cell       Role = "cell"       // be another cell: exchange free places and jobs
)

// Roles are all of them, in the order of the documentation.
func Roles() []Role { return []Role{Read, Push, Operate, Debug, Admit, Coordinate, Cell} }

// Known reports whether r is a role.
func (r Role) Known() bool { return slices.Contains(Roles(), r) }

// openRoles are those of every caller where the configuration has no access section:
// whoever can connect, which is this machine or holders of a certificate. Debug is not
// among them, since it reaches the secrets of jobs.
func openRoles() []Role {
	return slices.DeleteFunc(Roles(), func(r Role) bool { return r == Debug })
}

// either writes roles as a sentence has them: `"read" or "push"`.
func either(roles []Role) string {
	quoted := make([]string, len(roles))
	for i, r := range roles {
		quoted[i] = `"` + string(r) + `"`
	}
	return strings.Join(quoted, " or ")
}
