package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

const usage = `Usage: docsite [-source DIR] [-out DIR] [-version VERSION]

Makes the documentation a site in -out, which is replaced when everything is there.

Exit codes: 0 made; 1 something is wrong, all of which is said; 2 usage.

`

const (
	exitFailed = 1
	exitUsage  = 2
)

var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, errUsage):
		os.Exit(exitUsage)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("docsite", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage); flags.PrintDefaults() }
	source := flags.String("source", ".", "top folder of the sources")
	out := flags.String("out", "site", "folder that is made, or replaced")
	version := flags.String("version", "", "what the pages are about, such as v1.2.3")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return errUsage
	}
	s, err := build(os.DirFS(*source), references(ctx, *source), *version)
	if err != nil {
		return err
	}
	if err := s.replace(*out); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d files; open %s\n", len(s), filepath.Join(*out, "index.html"))
	return nil
}

// indexFile is a file of every site, and begins with indexBegins: a folder without it is
// somebody else's, and is not deleted.
const (
	indexFile   = "assets/index.js"
	indexBegins = "\"use strict\";\nconst spillwayIndex = "
)

// replace writes the site beside what is in a folder, and puts it in its place.
func (s site) replace(out string) error {
	if _, err := os.Stat(out); err == nil {
		script, err := os.ReadFile(filepath.Join(out, indexFile))
		if err != nil || !bytes.HasPrefix(script, []byte(indexBegins)) {
			return fmt.Errorf("%s is there and is no site: remove it, or name another folder", out)
		}
	}
	next, err := os.MkdirTemp(filepath.Dir(filepath.Clean(out)), ".site-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(next) }()
	if err := errors.Join(s.write(next), os.Chmod(next, 0o755)); err != nil { //nolint:gosec // everybody may read it
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	return os.Rename(next, out)
}

// write writes the files below a folder.
func (s site) write(dir string) error {
	for path, text := range s {
		file := filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // as above
			return err
		}
	}
	return nil
}
