package fleeting

import (
	"context"
	"errors"
	"fmt"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fleeting/wire"
)

// Findings implements pluginsdk.Provider.
func (p *Provider) Findings(ctx context.Context, groups []string) ([]pluginsdk.Finding, error) {
	if err := pluginsdk.CheckGroups(groups); err != nil {
		return nil, err
	}
	var all []pluginsdk.Finding
	for _, name := range groups {
		g, err := p.group(name)
		if errors.Is(err, pluginsdk.ErrNotFound) {
			all = append(all, pluginsdk.Finding{
				Group: name, Code: "group_not_found", Severity: pluginsdk.FindingError,
				Message: "a fleeting plugin is one group, and this is not its name: nothing can be launched", Fix: "use the name in the provider's groups",
			})
			continue
		}
		if err != nil {
			return nil, err
		}
		found, err := g.findings(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (g *group) findings(ctx context.Context) ([]pluginsdk.Finding, error) {
	ctx, leave, err := g.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := g.refresh(ctx, g.maxAge()); err != nil {
		return nil, err
	}
	var all []pluginsdk.Finding
	warn := func(code, message, fix string) {
		all = append(all, pluginsdk.Finding{Group: g.config.Groups[0], Code: code, Severity: pluginsdk.FindingWarning, Message: message, Fix: fix})
	}
	if g.config.SHA256 == "" {
		warn("binary_not_pinned", "sha256 is not set: whoever can replace the fleeting plugin's file decides what runs with its credentials",
			"set sha256 to "+g.image.Sum)
	}
	if sum := g.profile.Provenance.BinarySHA256; sum != g.image.Sum {
		warn("profile_of_another_binary", "the wire profile was made for another binary than the one that runs: its methods and fields fit, what they mean may have changed",
			"run `spillwayctl fleeting inspect BINARY --profile FILE --write`, and read what it proposes")
	}
	if g.pluginMax > 0 && g.pluginMax < g.config.Max {
		warn("plugin_max_below_max", fmt.Sprintf("the plugin allows %d instances, max is %d: the lower one counts", g.pluginMax, g.config.Max),
			"set both to the same number")
	}
	if n := g.members.inState(wire.Unknown); n > 0 {
		warn("unknown_states", fmt.Sprintf("%d instances are in a state that the wire profile doesn't name: they count as running and busy", n),
			"look at the states of `spillwayctl fleeting inspect` and name them with --set state.VALUE=STATE")
	}
	if n := g.members.inState(wire.Timeout); n > 0 {
		warn("timed_out_instances", fmt.Sprintf("the plugin says that %d instances timed out: they don't count, and may still exist and cost", n),
			"look for them in the cloud")
	}
	return all, nil
}
