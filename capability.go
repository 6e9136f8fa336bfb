package spillway

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits on what a capability or a requirement may carry. They exist so that
// no input can make matching or hashing expensive; each is tested at its edge.
const (
	// MaxJobTags is one more than the largest number of tags on a job. GitLab
	// refuses a job with 50 tags or more (lib/gitlab/ci/config/entry/tags.rb).
	MaxJobTags = 50
	// MaxRunnerTags bounds the tags of one capability [tags].
	MaxRunnerTags = 250
	// MaxTagBytes bounds one tag [bytes]; GitLab's column holds 255 characters.
	MaxTagBytes = 255
	// MaxScopeEntries bounds the projects or groups of a capability's scope, and
	// the ancestor groups of a job [entries].
	MaxScopeEntries = 10_000
	// MaxFeatures bounds the declared features of a resource set [entries].
	MaxFeatures = 64
	// MaxOriginBytes bounds the origin of a capability or a requirement [bytes].
	MaxOriginBytes = 255
)

// RunnerType says whom a runner serves, as GitLab defines it.
type RunnerType string

// The runner types. The zero value means InstanceType.
const (
	InstanceType RunnerType = "instance" // every project
	GroupType    RunnerType = "group"    // projects below one of Capability.Groups
	ProjectType  RunnerType = "project"  // one of Capability.Projects
)

// Resources is what a runner offers to each job, or what a job asks for. A zero
// amount in a capability means that nothing was declared: such a runner takes
// only jobs that ask for none of it.
type Resources struct {
	MilliCPU  int64    // thousandths of a CPU, ≥ 0
	MemoryMiB int64    // MiB, ≥ 0
	Features  []string // names such as "docker"; a set, case-sensitive
}

// CellOrigin is the origin of jobs that another cell has handed over, and of capabilities
// that another cell offers. A job of our own queue may go to either kind of pool; a job of
// another cell goes to our own pools only, so that none is handed on and on.
const CellOrigin = "cell"

// Capability is what a runner can take. Its tags are a set, compared byte by
// byte: order and duplicates carry no meaning, case does.
type Capability struct {
	Tags        []string
	RunUntagged bool       // takes jobs without tags
	Protected   bool       // takes only jobs of protected refs
	Type        RunnerType // zero value: InstanceType
	Groups      []int64    // scope of a GroupType runner
	Projects    []int64    // scope of a ProjectType runner
	Resources   Resources
	// Origin is where the jobs come from: empty for Spillway's own queue, else the URL
	// of the GitLab that hands them out. A runner takes jobs of its own origin only.
	Origin string
}

// ErrInvalid is wrapped by every validation error of this package.
var ErrInvalid = errors.New("invalid")

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// Validate reports every rule that c breaks, joined; nil when there is none.
func (c Capability) Validate() error {
	var errs []error
	if len(c.Tags) > MaxRunnerTags {
		errs = append(errs, invalidf("%d tags, at most %d are allowed", len(c.Tags), MaxRunnerTags))
	}
	errs = append(errs, validateTags(c.Tags))
	if len(c.Tags) == 0 && !c.RunUntagged {
		errs = append(errs, invalidf("a runner without tags must take untagged jobs, else it can take no job at all: add a tag or set run_untagged"))
	}
	switch c.Type {
	case "", InstanceType:
		if len(c.Groups)+len(c.Projects) > 0 {
			errs = append(errs, invalidf("an instance runner serves every project: remove groups and projects, or set type to group or project"))
		}
	case GroupType:
		if len(c.Groups) == 0 || len(c.Projects) > 0 {
			errs = append(errs, invalidf("a group runner needs at least one group and no projects"))
		}
	case ProjectType:
		if len(c.Projects) == 0 || len(c.Groups) > 0 {
			errs = append(errs, invalidf("a project runner needs at least one project and no groups"))
		}
	default:
		errs = append(errs, invalidf("runner type %q: use instance, group or project", c.Type))
	}
	if len(c.Groups) > MaxScopeEntries || len(c.Projects) > MaxScopeEntries {
		errs = append(errs, invalidf("scope has more than %d entries", MaxScopeEntries))
	}
	errs = append(errs, validateIDs("group", c.Groups), validateIDs("project", c.Projects))
	errs = append(errs, c.Resources.validate(), validateOrigin(c.Origin))
	return errors.Join(errs...)
}

func validateOrigin(origin string) error {
	if len(origin) > MaxOriginBytes || !printable(origin) {
		return invalidf("origin %.80q: use a URL of at most %d printable ASCII characters", origin, MaxOriginBytes)
	}
	return nil
}

func (r Resources) validate() error {
	if r.MilliCPU < 0 || r.MemoryMiB < 0 {
		return invalidf("resources must not be negative")
	}
	if len(r.Features) > MaxFeatures {
		return invalidf("%d features, at most %d are allowed", len(r.Features), MaxFeatures)
	}
	return validateTags(r.Features)
}

// validateTags checks each name, and stops at the first bad one: a list of
// thousands of bad tags is one mistake, not thousands.
func validateTags(tags []string) error {
	for _, t := range tags {
		switch {
		case t == "":
			return invalidf("an empty tag")
		case len(t) > MaxTagBytes:
			return invalidf("tag of %d bytes, at most %d are allowed", len(t), MaxTagBytes)
		}
	}
	return nil
}

// validateIDs checks the ids of a scope: 0 means that a job has no project, so a
// scope that held it would look like one and match nothing.
func validateIDs(noun string, ids []int64) error {
	for _, id := range ids {
		if id <= 0 {
			return invalidf("%s id %d: ids are positive", noun, id)
		}
	}
	return nil
}

// Normalize returns c in the one form that all capabilities with the same
// meaning share: sets sorted and without duplicates, the default type spelled
// out. It does not change tags: whether blanks were meant is config's question.
func (c Capability) Normalize() Capability {
	c.Tags = sortedSet(c.Tags)
	c.Type = cmp.Or(c.Type, InstanceType)
	c.Groups = sortedSet(c.Groups)
	c.Projects = sortedSet(c.Projects)
	c.Resources = c.Resources.normalize()
	return c
}

func (r Resources) normalize() Resources {
	r.Features = sortedSet(r.Features)
	return r
}

// String is for people: "docker,linux +untagged protected group[7]".
func (c Capability) String() string {
	c = c.Normalize()
	var b strings.Builder
	b.WriteString(strings.Join(c.Tags, ","))
	if c.RunUntagged {
		b.WriteString(" +untagged")
	}
	if c.Protected {
		b.WriteString(" protected")
	}
	switch c.Type {
	case GroupType:
		fmt.Fprintf(&b, " group%v", c.Groups)
	case ProjectType:
		fmt.Fprintf(&b, " project%v", c.Projects)
	case InstanceType:
	}
	if c.Origin != "" {
		fmt.Fprintf(&b, " of %s", c.Origin)
	}
	return strings.TrimSpace(b.String())
}

// sortedSet returns the distinct elements of s in order, nil for none. s is not
// changed.
func sortedSet[T cmp.Ordered](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	if slices.IsSorted(s) && !hasDuplicate(s) {
		return s
	}
	s = slices.Clone(s)
	slices.Sort(s)
	return slices.Compact(s)
}

func hasDuplicate[T comparable](sorted []T) bool {
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return true
		}
	}
	return false
}
