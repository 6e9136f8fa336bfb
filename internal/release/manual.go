package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// overlaid is the file that is laid over a command's own: it writes the pages before
// main begins. A program that is handed out has none of it.
const overlaid = `package main

import "github.com/spillway-ci/spillway/internal/manual"

func init() { manual.WriteAndExit(%s) }
`

// writeManual makes pages and completions on this machine, for all architectures.
func (r *release) writeManual(ctx context.Context) (map[string]string, error) {
	folders := map[string]string{}
	for _, p := range r.programs() {
		if p.command == "" {
			continue
		}
		folder := filepath.Join(r.work, "manual", p.name)
		if err := r.writePages(ctx, p, folder); err != nil {
			return nil, fmt.Errorf("manual pages of %s: %w", p.name, err)
		}
		folders[p.name] = folder
	}
	return folders, nil
}

func (r *release) writePages(ctx context.Context, p program, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	source, overlay, binary := folder+".go", folder+".json", folder+".bin"
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(r.source, p.from, "zz_manual.go"): source}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(source, fmt.Appendf(nil, overlaid, p.command), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(overlay, replace, 0o644); err != nil {
		return err
	}
	build := r.goCommand(ctx, "build", "-overlay", overlay, "-o", binary, p.from)
	build.Env = append(build.Env, "GOOS=", "GOARCH=") // this machine's
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	write := exec.CommandContext(ctx, binary, folder, r.version.linked, strconv.FormatInt(r.date.Unix(), 10))
	write.Env = []string{"PATH=/usr/bin:/bin", "TMPDIR=/tmp", "HOME=/"} // defaults of flags come from the environment
	if out, err := write.CombinedOutput(); err != nil {
		return fmt.Errorf("write: %w\n%s", err, out)
	}
	return nil
}
