package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// command is a program with commands and flags.
type command struct {
	name string
	from string // its package, from the top of the sources
	root string // a Go expression in that package for its *cobra.Command
}

var commands = []command{
	{"controlplane", "./cmd/controlplane", "newRoot()"},
	{"spillwayctl", "./cmd/spillwayctl", `(&app{getenv: func(string) string { return "" }}).root()`},
	{"spillway-agent", "./cmd/agent", "newCommand()"},
}

// overlaid is the file that is laid over a command's own: it writes the reference
// before main begins.
const overlaid = `package main

import "github.com/spillway-ci/spillway/internal/manual"

func init() { manual.DescribeAndExit(%s) }
`

// described is a command as package manual writes it.
type described struct {
	Name        string
	Synopsis    string
	Description string
	Usage       string
	Options     []option
	Inherited   []option `yaml:"inherited_options"`
}

type option struct {
	Name      string
	Shorthand string
	Default   string `yaml:"default_value"`
	Usage     string
}

// reference is the page of a command: all that it and its commands can do.
func (c command) reference(ctx context.Context, source string) ([]byte, error) {
	all, err := c.describe(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("reference of %s: %w", c.name, err)
	}
	var b strings.Builder
	for i, d := range all {
		if i == 0 {
			fmt.Fprintf(&b, "# Command %s\n", d.Name)
		} else {
			fmt.Fprintf(&b, "\n## %s\n", d.Name)
		}
		d.write(&b, all[0])
	}
	return []byte(b.String()), nil
}

// describe asks the command, compiled for that, for all of its commands, in their order.
func (c command) describe(ctx context.Context, source string) ([]described, error) {
	top, err := filepath.Abs(source)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "docsite-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	file, overlay, binary := filepath.Join(work, "main.go"), filepath.Join(work, "overlay.json"), filepath.Join(work, "program")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(top, c.from, "zz_manual.go"): file}})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, overlaid, c.root), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, c.from)
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	described := filepath.Join(work, "described")
	if err := os.Mkdir(described, 0o700); err != nil {
		return nil, err
	}
	write := exec.CommandContext(ctx, binary, described)
	write.Env = []string{"PATH=/usr/bin:/bin", "HOME=/", "TMPDIR=/tmp"} // defaults of flags come from the environment
	if out, err := write.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("write: %w\n%s", err, out)
	}
	return readDescribed(described)
}

// generated are commands that cobra adds to each program.
var generated = []string{"completion", "help"}

func readDescribed(dir string) (all []described, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var d described
		if err := yaml.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		if words := strings.Fields(d.Name); len(words) < 2 || !slices.Contains(generated, words[1]) {
			all = append(all, d)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("it has described nothing")
	}
	slices.SortFunc(all, func(a, b described) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// write writes a command as Markdown; its flags that are its root's stand there.
func (d described) write(b *strings.Builder, root described) {
	if d.Usage != "" {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSpace(d.Usage))
	}
	text := d.Description
	if text == "" {
		text = d.Synopsis
	}
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n  ") {
			fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimRight(paragraph, "\n "))
		} else {
			fmt.Fprintf(b, "\n%s\n", prose(paragraph))
		}
	}
	own := d.Options
	for _, o := range d.Inherited {
		if !slices.Contains(root.Options, o) {
			own = append(own, o)
		}
	}
	writeOptions(b, own)
	if d.Name == root.Name && len(d.Options) > 1 {
		b.WriteString("\nIts commands have these flags too.\n")
	}
}

func writeOptions(b *strings.Builder, options []option) {
	options = slices.DeleteFunc(slices.Clone(options), func(o option) bool { return o.Name == "help" })
	if len(options) == 0 {
		return
	}
	header(b, "flag", "default", "meaning")
	for _, o := range options {
		name := quoted("--" + o.Name)
		if o.Shorthand != "" {
			name += ", " + quoted("-"+o.Shorthand)
		}
		standard := o.Default
		if standard == "[]" || standard == "false" {
			standard = ""
		}
		row(b, name, quoted(standard), prose(o.Usage))
	}
}
