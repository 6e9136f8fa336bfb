package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// release is one to be made.
type release struct {
	source   string // absolute
	version  version
	date     time.Time
	arches   []string
	packages []pack
	image    string // the package whose programs are in the image
	log      io.Writer

	work string // a temporary folder
	out  string // what will be the result
}

// built are the files of one architecture, by program or package.
type built struct {
	arch     string
	programs map[string]string // path of each executable
	manual   map[string]string // folder with pages and completions of each program
	sbom     map[string]string // path of each package's list
}

// errNotARelease is what has something else in it, and is not to be replaced.
var errNotARelease = errors.New("is neither empty nor a release")

// make makes the release in dir, which stays as it was until everything is there.
// The work is done elsewhere: a source folder is no place for half of a release.
func (r *release) make(ctx context.Context, dir string) (err error) {
	if err := replaceable(dir); err != nil {
		return err
	}
	r.work, err = os.MkdirTemp("", "spillway-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	r.out = filepath.Join(r.work, "out")
	if err := os.Mkdir(r.out, 0o755); err != nil {
		return err
	}
	if err := r.fill(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.CopyFS(dir, os.DirFS(r.out))
}

// replaceable keeps the wrong folder from being emptied.
func replaceable(dir string) error {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(files) > 0 && !slices.ContainsFunc(files, func(f fs.DirEntry) bool { return f.Name() == sumsFile }) {
		return fmt.Errorf("%s %w (it has no %s): name another, or remove it", dir, errNotARelease, sumsFile)
	}
	return nil
}

func (r *release) fill(ctx context.Context) error {
	manual, err := r.writeManual(ctx)
	if err != nil {
		return err
	}
	var all []built
	for _, arch := range r.arches {
		b, err := r.buildArch(ctx, arch, manual)
		if err != nil {
			return fmt.Errorf("linux/%s: %w", arch, err)
		}
		all = append(all, b)
	}
	if err := r.writeImage(all); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := r.writeChart(); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	return writeSums(r.out)
}

func (r *release) buildArch(ctx context.Context, arch string, manual map[string]string) (built, error) {
	b := built{arch: arch, manual: manual, sbom: map[string]string{}}
	var err error
	if b.programs, err = r.compile(ctx, arch); err != nil {
		return b, err
	}
	for _, p := range r.packages {
		if b.sbom[p.name], err = r.writeSBOM(p, b); err != nil {
			return b, fmt.Errorf("list what %s is made of: %w", p.name, err)
		}
		if err := r.writePackages(p, b); err != nil {
			return b, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return b, r.writeArchive(b)
}

// file is a name in the release.
func (r *release) file(format string, args ...any) string {
	name := fmt.Sprintf(format, args...)
	fmt.Fprintln(r.log, name)
	return filepath.Join(r.out, name)
}

// programs are all of the release, in order.
func (r *release) programs() (all []program) {
	for _, p := range r.packages {
		all = append(all, p.programs...)
	}
	return all
}

func (r *release) imagePack() (pack, error) {
	i := slices.IndexFunc(r.packages, func(p pack) bool { return p.name == r.image })
	if i < 0 {
		return pack{}, fmt.Errorf("there is no package %q", r.image)
	}
	return r.packages[i], nil
}
