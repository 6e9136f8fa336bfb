package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
)

// writeArchive packs the programs of one architecture for machines without a packager.
func (r *release) writeArchive(b built) error {
	top := fmt.Sprintf("spillway_%s_linux_%s", r.version.semver, b.arch)
	entries := []entry{{name: top + "/LICENSE", from: filepath.Join(r.source, "LICENSE"), mode: 0o644}}
	for _, p := range r.programs() {
		folder := "bin"
		if p.dir == pluginDir {
			folder = "plugins"
		}
		entries = append(entries, entry{name: path.Join(top, folder, p.name), from: b.programs[p.name], mode: 0o755})
		pages, err := filesBelow(b.manual[p.name])
		if err != nil {
			return err
		}
		for _, page := range pages {
			entries = append(entries, entry{name: path.Join(top, "share", page), from: filepath.Join(b.manual[p.name], page), mode: 0o644})
		}
	}
	return writeTarGz(r.file("%s.tar.gz", top), entries, r.date)
}

// writeChart packs the Helm chart with the release's version in it.
func (r *release) writeChart() error {
	source := filepath.Join(r.source, "deploy", "helm", "spillway")
	names, err := filesBelow(source)
	if err != nil {
		return err
	}
	var entries []entry
	for _, name := range names {
		e := entry{name: path.Join("spillway", filepath.ToSlash(name)), from: filepath.Join(source, name), mode: 0o644}
		if name == "Chart.yaml" {
			text, err := os.ReadFile(e.from)
			if err != nil {
				return err
			}
			if e.data, err = r.chartFile(text); err != nil {
				return err
			}
			e.from = ""
		}
		entries = append(entries, e)
	}
	return writeTarGz(r.file("spillway-%s.tgz", r.version.semver), entries, r.date)
}

// filesBelow are the files of a folder, as paths from it; none without a folder.
func filesBelow(folder string) (names []string, err error) {
	if folder == "" {
		return nil, nil
	}
	err = filepath.WalkDir(folder, func(at string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, at)
		names = append(names, name)
		return err
	})
	return names, err
}
