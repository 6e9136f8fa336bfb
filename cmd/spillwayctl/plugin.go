package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

func (a *app) pluginCommand() *cobra.Command {
	return group("plugin", "Look at provider plugins, describe and check one",
		a.pluginListCommand(), a.pluginDescribeCommand(), a.pluginCheckCommand())
}

func (a *app) pluginListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the plugin processes of the control plane",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.admin.ListPlugins, &adminv1.ListPluginsRequest{})
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { a.pluginTable(w, resp) })
			})
		},
	}
}

func (a *app) pluginTable(w io.Writer, resp *adminv1.ListPluginsResponse) {
	t := newTable(w, "PROVIDER", "PLUGIN", "VERSION", "CONTRACT", "STATE", "PID", "RESTARTS", "STARTED", "SHA256", "CAN")
	for _, p := range resp.GetPlugins() {
		t.row(p.GetProvider(), dash(p.GetName()), dash(p.GetVersion()), number(p.GetContractVersion()), p.GetState(), number(p.GetPid()), number(p.GetRestarts()),
			age(p.GetStartedAt(), a.asOf(resp.GetAt())), dash(short(p.GetSha256())), strings.Join(p.GetCapabilities(), ","))
	}
	t.flush()
	for _, p := range resp.GetPlugins() {
		if p.GetLastError() != "" {
			_, _ = fmt.Fprintf(w, "%s: %s\n", printable(p.GetProvider()), printable(p.GetLastError()))
		}
	}
}

func (a *app) pluginDescribeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "describe BIN", Short: "Show what a plugin is, what it can do and how it is configured",
		Long: `Start the plugin BIN, ask it to describe itself and end it. No cloud is asked, and
no control plane is needed. With -o json the configuration's whole JSON Schema is
printed too.`,
		Args: exactly("BIN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, stop, err := launchPlugin(args[0], nil, a.stderr)
			if err != nil {
				return err
			}
			defer stop()
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			d, err := p.Describe(ctx)
			if err != nil {
				return failedf("%s can't describe itself: %w", args[0], err)
			}
			return a.showDescription(d)
		},
	}
}

// launchPlugin starts a plugin for a look at it.
func launchPlugin(path string, env []string, stderr io.Writer) (pluginsdk.Provider, func(), error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, nil, usagef("%w", err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return nil, nil, usagef("%s is not a program: name the plugin's binary", path)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, nil, usagef("%w", err)
	}
	p, stop, err := providertest.Launch(path, env, stderr)
	if err != nil {
		return nil, nil, failedf("%w", err)
	}
	return p, stop, nil
}

// description is what plugin describe -o json prints.
type description struct {
	Name         string                 `json:"name"`
	Version      string                 `json:"version"`
	Capabilities []pluginsdk.Capability `json:"capabilities"`
	Deviations   []deviation            `json:"deviations"`
	ConfigSchema json.RawMessage        `json:"config_schema"`
}

type deviation struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
}

func (a *app) showDescription(d pluginsdk.Description) error {
	if !json.Valid([]byte(d.ConfigSchema)) {
		return failedf("plugin %s: its config schema is not JSON; an author finds more with `spillwayctl plugin check`", d.Name)
	}
	if a.output == "json" {
		out := description{
			Name: d.Name, Version: d.Version, Capabilities: append([]pluginsdk.Capability{}, d.Capabilities...),
			Deviations: []deviation{}, ConfigSchema: json.RawMessage(d.ConfigSchema),
		}
		for _, v := range d.Deviations {
			out.Deviations = append(out.Deviations, deviation(v))
		}
		return writeIndented(a.stdout, out)
	}
	can := make([]string, len(d.Capabilities))
	for i, c := range d.Capabilities {
		can[i] = string(c)
	}
	_, _ = fmt.Fprintf(a.stdout, "%s %s\ncan: %s\n", printable(d.Name), printable(d.Version), cmp.Or(printable(strings.Join(can, ", ")), "nothing optional"))
	for _, v := range d.Deviations {
		_, _ = fmt.Fprintf(a.stdout, "deviates from %s: %s\n", printable(v.Check), printable(v.Reason))
	}
	_, _ = fmt.Fprintln(a.stdout)
	settingsTable(a.stdout, d.ConfigSchema)
	return nil
}

// property is as much of a JSON Schema as people need to see.
type property struct {
	Type        any                 `json:"type"`
	Description string              `json:"description"`
	Default     any                 `json:"default"`
	Required    []string            `json:"required"`
	Properties  map[string]property `json:"properties"`
	Items       *property           `json:"items"`
	Additional  json.RawMessage     `json:"additionalProperties"`
	Enum        []any               `json:"enum"`
	Ref         string              `json:"$ref"`
	Defs        map[string]property `json:"$defs"`
}

// maxSettingDepth ends a schema that refers to itself [levels].
const maxSettingDepth = 6

func settingsTable(w io.Writer, schema string) {
	var top property
	if json.Unmarshal([]byte(schema), &top) != nil || len(top.Properties) == 0 {
		_, _ = fmt.Fprintln(w, "It has no settings, or none that can be listed: see -o json.")
		return
	}
	t := newTable(w, "SETTING", "TYPE", "MEANS")
	settingRows(t, "", top, top.Defs, 0)
	t.flush()
}

// resolve follows a reference within the schema.
func (p property) resolve(defs map[string]property) property {
	target, ok := defs[strings.TrimPrefix(p.Ref, "#/$defs/")]
	if p.Ref == "" || !ok {
		return p
	}
	target.Description = cmp.Or(p.Description, target.Description)
	return target
}

// settingRows lists nested settings with dots, and what is in lists with [].
func settingRows(t table, prefix string, p property, defs map[string]property, depth int) {
	if depth > maxSettingDepth {
		return
	}
	names := make([]string, 0, len(p.Properties))
	for name := range p.Properties {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int { // what must be there first
		return cmp.Or(-compareBool(slices.Contains(p.Required, x), slices.Contains(p.Required, y)), strings.Compare(x, y))
	})
	for _, name := range names {
		child := p.Properties[name].resolve(defs)
		note := ""
		switch {
		case slices.Contains(p.Required, name):
			note = "required"
		case child.Default != nil:
			note = fmt.Sprintf("default %v", child.Default)
		}
		if note != "" && child.Description != "" {
			note += ": "
		}
		t.row(prefix+name, typeName(child), dash(note+child.Description))
		settingRows(t, prefix+name+".", child, defs, depth+1)
		if child.Items != nil {
			settingRows(t, prefix+name+"[].", child.Items.resolve(defs), defs, depth+1)
		}
		var each property
		if json.Unmarshal(child.Additional, &each) == nil {
			settingRows(t, prefix+name+".NAME.", each.resolve(defs), defs, depth+1)
		}
	}
}

func compareBool(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	default:
		return -1
	}
}

func typeName(p property) string {
	switch kind := p.Type.(type) {
	case string:
		return kind
	case []any:
		return strings.Trim(fmt.Sprint(kind), "[]")
	default:
		if len(p.Enum) > 0 {
			return strings.ReplaceAll(strings.Trim(fmt.Sprint(p.Enum), "[]"), " ", "|")
		}
		return "any"
	}
}
