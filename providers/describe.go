package providers

import (
	"context"
	"fmt"

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
