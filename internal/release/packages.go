package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// packager writes one kind of package.
type packager interface {
	Package(info *nfpm.Info, w io.Writer) error
	ConventionalFileName(info *nfpm.Info) string
}

// kinds are those of all Linux distributions that the project knows users of.
var kinds = []struct {
	name     string
	packager packager
}{{"deb", deb.Default}, {"rpm", rpm.DefaultRPM}}

// writePackages makes each kind of package of p for one architecture.
func (r *release) writePackages(p pack, b built) error {
	for _, kind := range kinds {
		info, err := r.describe(p, b) // the packager changes it
		if err != nil {
			return err
		}
		if err := nfpm.PrepareForPackager(info, kind.name); err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		f, err := os.Create(r.file("%s", kind.packager.ConventionalFileName(info)))
		if err != nil {
			return err
		}
		if err := errors.Join(kind.packager.Package(info, f), f.Close()); err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
	}
	return nil
}

// describe is everything that the packagers want to know.
func (r *release) describe(p pack, b built) (*nfpm.Info, error) {
	contents, err := r.contents(p, b)
	if err != nil {
		return nil, err
	}
	scripts, err := r.scripts(p)
	if err != nil {
		return nil, err
	}
	info := &nfpm.Info{
		Name: p.name, Arch: b.arch, Platform: "linux",
		Version: r.version.debian, VersionSchema: "none",
		Section: "admin", Priority: "optional",
		Maintainer: "The Spillway authors <maintainers@spillway-ci.invalid>", Vendor: "Spillway",
		Homepage: "https://github.com/spillway-ci/spillway", License: "Apache-2.0",
		Description: p.summary + "\n" + p.text,
		MTime:       r.date, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Umask:    0o022,
			Depends:  []string{"systemd"}, // makes the user and the folders
			Contents: contents, Scripts: scripts,
			RPM: nfpm.RPM{Summary: p.summary, BuildHost: "localhost", Compression: "gzip"},
			Deb: nfpm.Deb{Compression: "gzip"},
		},
	}
	return nfpm.WithDefaults(info), nil
}

// scripts are those of deploy/scripts with the package's own names in them.
func (r *release) scripts(p pack) (nfpm.Scripts, error) {
	var s nfpm.Scripts
	for name, path := range map[string]*string{"postinst": &s.PostInstall, "prerm": &s.PreRemove, "postrm": &s.PostRemove} {
		text, err := os.ReadFile(filepath.Join(r.source, "deploy", "scripts", name))
		if err != nil {
			return s, err
		}
		*path = filepath.Join(r.work, p.name+"."+name)
		if err := os.WriteFile(*path, fillIn(text, p), 0o755); err != nil {
			return s, err
		}
	}
	return s, nil
}
