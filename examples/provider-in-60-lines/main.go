// A provider that leaves the work to a script: anything with a command line.
package main

import (
	"context"
	"os/exec"
	"strings"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

func main() { pluginsdk.Serve(pluginsdk.FromInstances(&script{})) }

const schema = `{"type": "object", "additionalProperties": false, "required": ["script", "groups"], "properties": {
	"script": {"type": "string", "description": "run with list, create or delete, the group, and for delete an id"},
	"groups": {"type": "object", "description": "how many instances each may have", "additionalProperties": {"type": "integer"}}}}`

type config struct {
	Script string         `json:"script" config:"required"`
	Groups map[string]int `json:"groups" config:"required"`
}

type script struct{ pluginsdk.Configured[config] }

func (s *script) Describe(context.Context) (pluginsdk.Description, error) {
	return pluginsdk.Description{Name: "script", Version: "1.0.0", ConfigSchema: schema}, nil
}

func (s *script) Configure(_ context.Context, raw []byte) error {
	var c config
	if err := pluginsdk.DecodeConfig(raw, &c); err != nil {
		return err
	}
	return s.Set(&c)
}

func (s *script) List(ctx context.Context, group string) (all []pluginsdk.Instance, most int, err error) {
	out, most, err := s.run(ctx, "list", group)
	for _, id := range strings.Fields(out) {
		all = append(all, pluginsdk.Instance{ID: id, State: pluginsdk.StateRunning})
	}
	return all, most, err
}

func (s *script) Create(ctx context.Context, group string) (id string, err error) {
	id, _, err = s.run(ctx, "create", group)
	return id, err
}

func (s *script) Delete(ctx context.Context, group, id string) error {
	_, _, err := s.run(ctx, "delete", group, id)
	return err
}

func (s *script) Close(context.Context) error { return nil }

func (s *script) run(ctx context.Context, args ...string) (out string, most int, err error) {
	c, err := s.Get()
	if err != nil {
		return "", 0, err
	}
	most, known := c.Groups[args[1]]
	if !known {
		return "", 0, pluginsdk.Errorf(pluginsdk.KindNotFound, "no group %s", args[1])
	}
	raw, err := exec.CommandContext(ctx, c.Script, args...).Output()
	if err != nil {
		return "", 0, pluginsdk.Errorf(pluginsdk.KindTransient, "%s %s: %w", c.Script, args[0], err)
	}
	return strings.TrimSpace(string(raw)), most, nil
}
