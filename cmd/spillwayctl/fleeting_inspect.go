package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/internal/program"
	"github.com/spillway-ci/spillway/providers/fleeting/child"
	"github.com/spillway-ci/spillway/providers/fleeting/wire"
)

// inspection is one inspect.
type inspection struct {
	binary  string
	profile string
	sets    []string
	env     []string
	write   bool
}

// inspected is what comes of it. It is what -o json prints.
type inspected struct {
	Binary   string             `json:"binary"`
	SHA256   string             `json:"sha256"`
	Services []wire.ServiceInfo `json:"services"`
	Proposal *wire.Proposal     `json:"proposal"` // null: see problems
	Problems []string           `json:"problems"`
}

func (a *app) fleetingInspectCommand() *cobra.Command {
	var in inspection
	cmd := &cobra.Command{
		Use: "inspect BINARY --profile FILE", Short: "Ask a fleeting plugin how it is spoken to, and propose a binding",
		Long: `Start a fleeting plugin as the wire profile says, ask it for its methods and fields,
and propose which of them are meant. None of its methods is called: it costs
nothing, needs no credentials, and nothing is left running.

Methods are bound by their names, and fields by their kind; where several are of
the kind, the only one with the expected word in its name is meant. Where two
could be meant, it stops and says so, and --set decides:

  --set Init.config=FIELD   the field that takes plugin_config
  --set Init=NAME           a method with another name
  --set service=NAME        one of several services
  --set state.VALUE=running the state that a value means: creating, running,
                            deleting, deleted, timeout or unknown
  --set Update.error=       nothing at all, where it isn't needed

Read what it proposes. Then --write adds it to the profile.`,
		Args: exactly("one BINARY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.binary = args[0]
			return a.fleetingInspect(cmd.Context(), in)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&in.profile, "profile", "", "wire profile, made by spillwayctl fleeting probe")
	flags.StringArrayVar(&in.sets, "set", nil, "decide what is left open, WHAT=NAME; repeatable")
	flags.StringArrayVar(&in.env, "env", nil, "name of a variable that the plugin may see; it sees no others; repeatable")
	flags.BoolVar(&in.write, "write", false, "write the binding into the profile")
	_ = cmd.MarkFlagRequired("profile")
	return cmd
}

func (a *app) fleetingInspect(ctx context.Context, in inspection) error {
	chosen, err := choices(in.sets)
	if err != nil {
		return err
	}
	profile, err := wire.Load(in.profile)
	if err == nil {
		err = profile.Startable()
	}
	if err != nil {
		return usagef("%w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	found, open, err := inspect(ctx, in, profile, chosen)
	if err != nil {
		return failedf("%s: %w", in.binary, err)
	}
	if err := a.showInspected(found); err != nil {
		return err
	}
	if open != nil {
		return failedf("no binding: %w", open)
	}
	if !in.write {
		return nil
	}
	profile.Binding = &found.Proposal.Binding
	profile.Provenance.InspectedAt = a.now().UTC().Truncate(time.Second)
	profile.Provenance.Binary, profile.Provenance.BinarySHA256 = filepath.Base(in.binary), found.SHA256
	if err := profile.Save(in.profile); err != nil {
		return failedf("writing %s: %w", in.profile, err)
	}
	return nil
}

func choices(sets []string) (wire.Choices, error) {
	chosen := wire.Choices{}
	for _, s := range sets {
		what, name, ok := strings.Cut(s, "=")
		if _, twice := chosen[what]; !ok || what == "" || twice {
			return nil, usagef("--set %q: write WHAT=NAME, each once, such as Init.config=settings", s)
		}
		chosen[what] = name
	}
	return chosen, nil
}

// inspect runs the plugin. open is why there is no proposal, although it answered.
func inspect(ctx context.Context, in inspection, profile *wire.Profile, chosen wire.Choices) (found *inspected, open, err error) {
	path, err := filepath.Abs(in.binary)
	if err != nil {
		return nil, nil, err
	}
	image, err := program.Open(path, "", "")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	h := profile.Handshake
	var env []string
	for _, name := range in.env {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	c, err := child.Start(ctx, image, child.Spec{
		CookieKey: h.CookieKey, CookieValue: h.CookieValue, ProtocolVersions: h.ProtocolVersions, AutoMTLS: h.AutoMTLS, Env: env,
	})
	if err != nil {
		return nil, nil, err
	}
	defer c.Kill()
	described, err := wire.Read(ctx, c.Conn())
	if err != nil {
		return nil, nil, err
	}
	found = &inspected{Binary: filepath.Base(path), SHA256: image.Sum, Services: described.Describe(), Problems: []string{}}
	if found.Proposal, open = wire.Propose(described, chosen); open != nil {
		found.Problems = strings.Split(open.Error(), "\n")
	}
	return found, open, nil
}

func (a *app) showInspected(found *inspected) error {
	if a.output == "json" {
		enc := json.NewEncoder(a.stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(found)
	}
	inspectedTables(a.stdout, found)
	return nil
}

func inspectedTables(w io.Writer, found *inspected) {
	t := newTable(w, "BINARY", "SHA256")
	t.row(found.Binary, found.SHA256)
	t.flush()
	for _, s := range found.Services {
		_, _ = fmt.Fprintf(w, "\nservice %s\n", printable(s.Name))
		t := newTable(w, "METHOD", "WAY", "FIELD", "TYPE")
		for _, m := range s.Methods {
			messageRows(t, m.Name, "request", m.Request)
			way := "answer"
			if m.Stream {
				way = "answers"
			}
			messageRows(t, m.Name, way, m.Answer)
		}
		t.flush()
	}
	if found.Proposal == nil {
		return
	}
	_, _ = fmt.Fprintln(w, "\nproposed binding")
	t = newTable(w, "WHAT", "BOUND TO", "TYPE", "WHY")
	for _, b := range found.Proposal.Lines {
		t.row(b.What, dash(b.To), dash(b.Type), dash(string(b.Reason)))
	}
	t.flush()
}

func messageRows(t table, method, way string, m wire.MessageInfo) {
	if len(m.Fields) == 0 {
		t.row(method, way, "-", "-")
	}
	for _, f := range m.Fields {
		fieldRows(t, method, way, "", f)
	}
}

func fieldRows(t table, method, way, above string, f wire.FieldInfo) {
	typ := f.Type
	if len(f.Values) > 0 {
		typ += ": " + strings.Join(f.Values, ", ")
	}
	t.row(method, way, above+f.Path, typ)
	for _, e := range f.Element {
		fieldRows(t, method, way, f.Path+"[].", e)
	}
}
