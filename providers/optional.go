package providers

import (
	"context"
	"math"
	"regexp"
	"slices"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Limits on what a plugin may answer to the calls that no pool's loop makes.
const (
	maxFindingCodeBytes = 64
	maxMetricNameBytes  = 255
	maxCountedJobs      = 1e9 // far more than anybody has, far less than an int holds
	// maxCountLead is how far a count may be from the future: clocks differ. More,
	// and it would stay fresh after its source has died.
	maxCountLead = 10 * time.Second
)

var findingCode = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// Findings looks for settings of groups that work against Spillway. It may take
// [Timing.Find] for each thousand groups. ErrUnsupported is a plugin that can't look.
func (p *Plugin) Findings(ctx context.Context, groups []string) ([]pluginsdk.Finding, error) {
	var all []pluginsdk.Finding
	for page := range slices.Chunk(groups, pluginsdk.MaxGroupsPerCall) {
		some, err := ask(ctx, p, CallInfo{Op: OpFindings}, p.timing.Find,
			func(ctx context.Context, provider pluginsdk.Provider) ([]pluginsdk.Finding, error) {
				found, err := provider.Findings(ctx, page)
				if err != nil {
					return nil, err
				}
				return checkFindings(page, found)
			})
		if err != nil {
			return nil, err // what half of the groups have looks like all that there is
		}
		all = append(all, some...)
	}
	return all, nil
}

var severities = []pluginsdk.Severity{pluginsdk.FindingError, pluginsdk.FindingWarning, pluginsdk.FindingInfo}

// checkFindings refuses what breaks the contract, and bounds the texts.
func checkFindings(groups []string, found []pluginsdk.Finding) ([]pluginsdk.Finding, error) {
	if len(found) > pluginsdk.MaxFindings {
		return nil, refused(OpFindings, "%d findings, the limit is %d", len(found), pluginsdk.MaxFindings)
	}
	asked := make(map[string]bool, len(groups))
	for _, g := range groups {
		asked[g] = true
	}
	for i := range found {
		f := &found[i]
		switch {
		case !asked[f.Group]:
			return nil, refused(OpFindings, "finding %d is about group %.200q, which was not asked", i, f.Group)
		case len(f.Code) > maxFindingCodeBytes || !findingCode.MatchString(f.Code):
			return nil, refused(OpFindings, "finding %d has code %.80q, use snake_case of at most %d bytes", i, f.Code, maxFindingCodeBytes)
		case !slices.Contains(severities, f.Severity):
			return nil, refused(OpFindings, "finding %s has severity %.80q", f.Code, f.Severity)
		case f.Message == "":
			return nil, refused(OpFindings, "finding %s has no message", f.Code)
		}
		f.Message, f.Fix = cut(f.Message), cut(f.Fix)
	}
	return found, nil
}

// Count reads the metric called name. It is never a guess: what can't be a number of
// jobs is an error, and so is a number of which nobody says how old it is.
func (p *Plugin) Count(ctx context.Context, name string) (pluginsdk.Count, error) {
	if name == "" || len(name) > maxMetricNameBytes {
		return pluginsdk.Count{}, pluginsdk.Errorf(pluginsdk.KindInvalid, "a metric's name of %d bytes, use 1 to %d", len(name), maxMetricNameBytes)
	}
	return ask(ctx, p, CallInfo{Op: OpCount}, p.timing.Read,
		func(ctx context.Context, provider pluginsdk.Provider) (pluginsdk.Count, error) {
			c, err := provider.Count(ctx, name)
			if err != nil {
				return pluginsdk.Count{}, err
			}
			return checkCount(c, time.Now())
		})
}

func checkCount(c pluginsdk.Count, now time.Time) (pluginsdk.Count, error) {
	switch {
	case math.IsNaN(c.Jobs) || c.Jobs < 0 || c.Jobs > maxCountedJobs:
		return pluginsdk.Count{}, refused(OpCount, "%g is no number of jobs, use 0 to %g", c.Jobs, float64(maxCountedJobs))
	case c.At.IsZero():
		return pluginsdk.Count{}, refused(OpCount, "it doesn't say when there were %g jobs", c.Jobs)
	case c.At.Sub(now) > maxCountLead:
		return pluginsdk.Count{}, refused(OpCount, "its time is %v in the future", c.At.Sub(now).Round(time.Second))
	case c.At.After(now):
		c.At = now
	}
	return c, nil
}

// Protect switches the group's own scale-in protection of the named instances, a
// page at a time; it stops at the first page that fails and may be repeated.
func (p *Plugin) Protect(ctx context.Context, group string, ids []string, on bool) error {
	if err := named(group, ids); err != nil {
		return err
	}
	return eachPage(ids, func(page []string) error {
		_, err := ask(ctx, p, CallInfo{Op: OpProtect, Group: group}, p.timing.Write,
			func(ctx context.Context, provider pluginsdk.Provider) (struct{}, error) {
				return struct{}{}, provider.Protect(ctx, group, page, on)
			})
		return err
	})
}

// ask makes one call that no pool's loop makes, with what [Decorate] gives to those:
// observation outermost, then the checks (within f), the deadline innermost.
func ask[T any](
	ctx context.Context, p *Plugin, who CallInfo, patience time.Duration,
	f func(context.Context, pluginsdk.Provider) (T, error),
) (T, error) {
	who.Provider = p.spec.Name
	return observed(p.observer, who, func() (T, error) {
		ctx, cancel := withPatience(ctx, patience)
		defer cancel()
		return call(ctx, p, f)
	})
}

// refused is an answer that breaks the contract.
func refused(op Op, format string, args ...any) *pluginsdk.Error {
	return pluginsdk.Errorf(pluginsdk.KindInvalid, "the plugin's answer to "+string(op)+" is refused: "+format, args...)
}
