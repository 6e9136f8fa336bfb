package providers

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/spillway-ci/spillway/internal/program"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Describe starts the plugin, asks what it is, holds spec's configuration to its
// schema and ends it: a check that asks no cloud. The errors are those of Start and
// of a launch.
func (h *Host) Describe(ctx context.Context, spec Spec) (pluginsdk.Description, error) {
	if err := spec.Validate(); err != nil {
		return pluginsdk.Description{}, err
	}
	if len(spec.Config) == 0 {
		spec.Config = []byte("{}")
	}
	img, err := program.Open(spec.Path, spec.SHA256, h.sockets.path)
	if err != nil {
		return pluginsdk.Description{}, fmt.Errorf("provider %q: %w", spec.Name, err)
	}
	defer func() { _ = img.Close() }()
	l := &launcher{
		spec: spec, image: img, parent: h.sockets.path,
		output: newOutput(h.options.Logger, h.options.Redact), timing: h.options.Timing,
	}
	s, err := l.begin(ctx)
	if err != nil {
		return pluginsdk.Description{}, err
	}
	defer s.discard()
	ctx, cancel := context.WithTimeout(ctx, h.options.Timing.Configure)
	defer cancel()
	if err := l.describe(ctx, s); err != nil {
		return pluginsdk.Description{}, err
	}
	return s.description, nil
}

// maxDeviations bounds what a plugin says of itself besides its name, all of which is kept
// and shown for as long as it runs.
const maxDeviations = 100

// checkDescription refuses what breaks the contract.
func checkDescription(d pluginsdk.Description) error {
	switch {
	case d.Name == "":
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "it has no name")
	case !showable(d.Name) || !showable(d.Version):
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "its name is %.80q and its version %.80q, use at most %d printable characters", d.Name, d.Version, pluginsdk.MaxNameBytes)
	case len(d.Deviations) > maxDeviations:
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "it has %d deviations, the limit is %d", len(d.Deviations), maxDeviations)
	default:
		return nil
	}
}

func showable(s string) bool {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	return len(s) <= pluginsdk.MaxNameBytes && !strings.ContainsFunc(s, unprintable)
}
