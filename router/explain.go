package router

import (
	"fmt"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/spillway-ci/spillway"
)

// maxNamesExplained bounds the tags or features that one explanation names
// [names]: the sentence goes into logs and onto pages.
const maxNamesExplained = 3

// Explain answers as [Match] does, with the sentence that says what is missing
// and, where a name was most likely mistyped, what it differs in.
func Explain(c *spillway.Capability, r *spillway.Requirement) Verdict {
	v := Match(c, r)
	switch v.Predicate {
	case PredicateNone:
	case PredicateOrigin:
		v.Detail = "the job is handed out by " + originName(r.Origin) + ", and the runner " + takesJobsOf(c.Origin)
	case PredicateProtected:
		v.Detail = "the runner takes only jobs of protected refs, and the job's ref is not protected"
	case PredicateUntagged:
		v.Detail = "the job has no tags, and the runner does not take untagged jobs"
	case PredicateTags:
		v.Detail = "the runner lacks the tag " + missing(r.Tags, c.Tags)
	case PredicateScope:
		v.Detail = explainScope(c, r)
	case PredicateResources:
		v.Detail = explainResources(&c.Resources, &r.Resources)
	}
	return v
}

func originName(origin string) string {
	switch origin {
	case "":
		return "Spillway's own queue"
	case spillway.CellOrigin:
		return "another cell"
	default:
		return origin
	}
}

// takesJobsOf says whose jobs a runner of an origin takes. One that another cell offers
// takes ours: its origin says whose it is.
func takesJobsOf(origin string) string {
	if origin == spillway.CellOrigin {
		return "is another cell's, which takes jobs of Spillway's own queue only"
	}
	return "takes jobs of " + originName(origin)
}

func explainScope(c *spillway.Capability, r *spillway.Requirement) string {
	switch c.Type {
	case spillway.GroupType:
		if len(r.Groups) == 0 {
			return "the runner serves certain groups, and the job names none"
		}
		return fmt.Sprintf("none of the %d groups that the runner serves is among the %d that the job's project is in", len(c.Groups), len(r.Groups))
	case spillway.ProjectType:
		if r.Project == 0 {
			return "the runner serves certain projects, and the job names none"
		}
		return fmt.Sprintf("the job's project %d is not among the %d projects that the runner serves", r.Project, len(c.Projects))
	case spillway.InstanceType:
	}
	return fmt.Sprintf("the runner is of the unknown type %.40q, which serves nobody", c.Type)
}

func explainResources(has, wants *spillway.Resources) string {
	var lacks []string
	if has.MilliCPU < wants.MilliCPU {
		lacks = append(lacks, fmt.Sprintf("the job asks for %d thousandths of a CPU, the runner offers %d", wants.MilliCPU, has.MilliCPU))
	}
	if has.MemoryMiB < wants.MemoryMiB {
		lacks = append(lacks, fmt.Sprintf("the job asks for %d MiB of memory, the runner offers %d", wants.MemoryMiB, has.MemoryMiB))
	}
	if !subset(wants.Features, has.Features) {
		lacks = append(lacks, "the runner lacks the feature "+missing(wants.Features, has.Features))
	}
	return strings.Join(lacks, "; ")
}

// missing lists the names in wants that has does not hold, each with a hint.
func missing(wants, has []string) string {
	have := make(map[string]bool, len(has))
	for _, name := range has {
		have[name] = true
	}
	var out []string
	more := 0
	for _, name := range wants {
		if have[name] {
			continue
		}
		have[name] = true // name a duplicate once
		if len(out) == maxNamesExplained {
			more++
			continue
		}
		out = append(out, quote(name)+hint(name, has))
	}
	s := strings.Join(out, ", ")
	if more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

// hint says how the name comes close to one that the runner has, empty if it
// does not. Names stay different for all that: what differs in bytes differs.
func hint(name string, has []string) string {
	for _, other := range has {
		if how := difference(name, other); how != "" {
			return fmt.Sprintf(" (%s differs only in %s)", quote(other), how)
		}
	}
	switch {
	case strings.Contains(name, "$"):
		return " (is this a variable that was not expanded?)"
	case strings.ContainsAny(name, ",; \t"):
		return " (one name, not a list)"
	default:
		return ""
	}
}

// difference names what alone sets a and b apart, empty when more does.
func difference(a, b string) string {
	switch {
	case strings.EqualFold(a, b):
		return "case"
	case norm.NFC.String(a) == norm.NFC.String(b):
		return "Unicode normalization"
	case strings.TrimSpace(a) == strings.TrimSpace(b):
		return "surrounding blanks"
	case strings.EqualFold(norm.NFC.String(a), norm.NFC.String(b)):
		return "case and Unicode normalization"
	default:
		return ""
	}
}

// quote shows every byte that could be mistaken for another as an escape.
func quote(name string) string { return fmt.Sprintf("%+q", name) }
