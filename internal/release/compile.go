package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// compile builds the programs for one architecture. They are static, and the same
// whatever folder, user or clone they are built in: the commit is not stamped in,
// since that of a shallow clone or an unpacked archive is another one, or none.
func (r *release) compile(ctx context.Context, arch string) (map[string]string, error) {
	paths := map[string]string{}
	for _, p := range r.programs() {
		path := filepath.Join(r.work, "bin-"+arch, p.name)
		cmd := r.goCommand(ctx, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+r.version.linked, "-o", path, p.from)
		// GOAMD64 and GOARM64 are the oldest processors, whatever this machine's owner has set.
		cmd.Env = append(cmd.Env, "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", p.name, err, out)
		}
		paths[p.name] = path
	}
	return paths, nil
}

// goCommand runs the go tool in the source, as it is in go.mod.
func (r *release) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off")
	return cmd
}
