package main

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2/files"
)

// fillIn puts a package's own names into one of its scripts.
func fillIn(script []byte, p pack) []byte {
	script = bytes.ReplaceAll(script, []byte("@NAME@"), []byte(p.unit))
	return bytes.ReplaceAll(script, []byte("@AFTER_UPGRADE@"), []byte(p.afterUpgrade))
}

// docDir is where a package keeps what is about itself.
func docDir(p pack) string { return path.Join("/usr/share/doc", p.name) }

// installed says where a file of ours goes.
func installed(from, to string, mode fs.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: to, Type: files.TypeFile, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode}}
}

// contents are all files of a package.
func (r *release) contents(p pack, b built) (all files.Contents, err error) {
	deploy := func(elem ...string) string { return filepath.Join(append([]string{r.source, "deploy"}, elem...)...) }
	for _, prog := range p.programs {
		all = append(all, installed(b.programs[prog.name], path.Join(prog.dir, prog.name), 0o755))
		pages, err := r.manualOf(b.manual[prog.name])
		if err != nil {
			return nil, err
		}
		all = append(all, pages...)
	}
	all = append(all,
		installed(deploy("systemd", p.unit+".service"), "/usr/lib/systemd/system/"+p.unit+".service", 0o644),
		installed(deploy("systemd", p.unit+".sysusers"), "/usr/lib/sysusers.d/"+p.unit+".conf", 0o644),
		installed(deploy("systemd", p.unit+".tmpfiles"), "/usr/lib/tmpfiles.d/"+p.unit+".conf", 0o644),
		installed(filepath.Join(r.source, "LICENSE"), path.Join(docDir(p), "copyright"), 0o644),
		installed(b.sbom[p.name], path.Join(docDir(p), p.name+".cdx.json"), 0o644),
	)
	if p.example != "" {
		all = append(all, installed(filepath.Join(r.source, p.example), path.Join(docDir(p), "spillway.example.yaml"), 0o644))
	}
	for _, c := range p.config {
		file := installed(deploy("etc", c.from), path.Join("/etc", p.unit, c.from), fs.FileMode(c.mode))
		file.Type = files.TypeConfigNoReplace
		all = append(all, file)
	}
	for _, dir := range []string{path.Join("/etc", p.unit), docDir(p)} {
		all = append(all, &files.Content{Destination: dir, Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o755}})
	}
	return all, nil
}

// manualOf are a program's pages and completions, in the folders where Debian and
// Fedora look for them.
func (r *release) manualOf(folder string) (all files.Contents, err error) {
	names, err := filesBelow(folder)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		from, base := filepath.Join(folder, name), filepath.Base(name)
		switch filepath.Dir(name) {
		case "man":
			text, err := os.ReadFile(from)
			if err != nil {
				return nil, err
			}
			if text, err = compressed(text); err != nil {
				return nil, err
			}
			from = filepath.Join(r.work, base+".gz")
			if err := os.WriteFile(from, text, 0o644); err != nil {
				return nil, err
			}
			all = append(all, installed(from, "/usr/share/man/man1/"+base+".gz", 0o644))
		case "bash":
			all = append(all, installed(from, "/usr/share/bash-completion/completions/"+base, 0o644))
		case "fish":
			all = append(all, installed(from, "/usr/share/fish/vendor_completions.d/"+base, 0o644))
		case "zsh":
			onDebian := installed(from, "/usr/share/zsh/vendor-completions/"+base, 0o644)
			onFedora := installed(from, "/usr/share/zsh/site-functions/"+base, 0o644)
			onDebian.Packager, onFedora.Packager = "deb", "rpm"
			all = append(all, onDebian, onFedora)
		}
	}
	return all, nil
}
