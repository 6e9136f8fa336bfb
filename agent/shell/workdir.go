package shell

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// workDir is the private directory of one run:
//
//	script      what is run
//	project/    where it is run
//	tmp/        its TMPDIR
//	output.log  its output, if asked for
type workDir struct{ root string }

// makeWorkDir makes the directory for the owner's eyes only, under a name that
// nobody can know before: whoever could guess it could put a link there first.
func makeWorkDir(parent, script string) (_ *workDir, err error) {
	root, err := os.MkdirTemp(parent, "job-")
	if err != nil {
		return nil, fmt.Errorf("make the work directory: %w", err)
	}
	d := &workDir{root}
	defer func() {
		if err != nil {
			_ = d.remove() // the first error tells more
		}
	}()
	for _, sub := range []string{d.project(), d.tmp()} {
		if err := os.Mkdir(sub, 0o700); err != nil {
			return nil, fmt.Errorf("make the work directory: %w", err)
		}
	}
	if err := os.WriteFile(d.script(), []byte(script), 0o600); err != nil {
		return nil, fmt.Errorf("write the script: %w", err)
	}
	return d, nil
}

func (d *workDir) script() string  { return filepath.Join(d.root, "script") }
func (d *workDir) project() string { return filepath.Join(d.root, "project") }
func (d *workDir) tmp() string     { return filepath.Join(d.root, "tmp") }
func (d *workDir) log() string     { return filepath.Join(d.root, "output.log") }

// remove deletes the directory. Scripts leave read-only directories (module
// caches do), in which only root may delete: those are made writable and it is
// tried once more.
func (d *workDir) remove() error {
	if os.RemoveAll(d.root) == nil {
		return nil
	}
	_ = filepath.WalkDir(d.root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700) // RemoveAll below reports what stays
		}
		return nil
	})
	if err := os.RemoveAll(d.root); err != nil {
		return fmt.Errorf("delete the work directory: %w", err)
	}
	return nil
}
