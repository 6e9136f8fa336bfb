package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const usage = `Usage: release [-source DIR] [-out DIR] [-arch LIST] -version VERSION

Makes the release of a source folder in -out. A release that is there is replaced when
everything is made; a folder of anything else is left alone. The date in all files is
that of $SOURCE_DATE_EPOCH, by default the last commit's.

Exit codes: 0 made; 1 failed; 2 usage.

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
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(exitFailed)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage); flags.PrintDefaults() }
	source := flags.String("source", ".", "folder of the source")
	out := flags.String("out", "dist", "folder that is made, or a release to be replaced")
	arches := flags.String("arch", "amd64,arm64", "architectures, as Go names them")
	version := flags.String("version", "", "such as v1.2.3, or what git describe says")
	if err := flags.Parse(args); err != nil {
		return errUsage
	}
	if *version == "" || flags.NArg() > 0 {
		flags.Usage()
		return errUsage
	}
	date, err := dateOf(ctx, *source)
	if err != nil {
		return err
	}
	top, err := filepath.Abs(*source)
	if err != nil {
		return err
	}
	r := release{source: top, version: parseVersion(*version), date: date, arches: strings.Split(*arches, ","), packages: packages, image: "spillway-control-plane", log: stdout}
	return r.make(ctx, *out)
}

// dateOf is the date that everything bears.
func dateOf(ctx context.Context, source string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.CommandContext(ctx, "git", "-C", source, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("ask git for the date of the last commit (or set SOURCE_DATE_EPOCH): %w", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds <= 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH %q is not a number of seconds since 1970", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
