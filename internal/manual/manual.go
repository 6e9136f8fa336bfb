package manual

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// The folders that Write makes, and what is in them for a command named NAME.
const (
	Man  = "man"  // NAME.1, and NAME-SUB.1 for each of its commands
	Bash = "bash" // NAME
	Zsh  = "zsh"  // _NAME
	Fish = "fish" // NAME.fish
)

// Edition is what pages say of where they come from.
type Edition struct {
	Version string
	Date    time.Time
}

// Write makes the pages and completions of a command and those below it in dir.
func Write(root *cobra.Command, edition Edition, dir string) error {
	for _, folder := range []string{Man, Bash, Zsh, Fish} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return err
		}
	}
	date := edition.Date.UTC()
	header := &doc.GenManHeader{Section: "1", Date: &date, Source: "Spillway " + edition.Version, Manual: "Spillway"}
	root.DisableAutoGenTag = true // has no place in something that is to be made again byte by byte
	name := root.Name()
	return errors.Join(
		doc.GenManTree(root, header, filepath.Join(dir, Man)),
		root.GenBashCompletionFileV2(filepath.Join(dir, Bash, name), true),
		root.GenZshCompletionFile(filepath.Join(dir, Zsh, "_"+name)),
		root.GenFishCompletionFile(filepath.Join(dir, Fish, name+".fish"), true),
	)
}

// WriteAndExit is a whole program: PROGRAM DIR VERSION SECONDS, the last being the
// edition's date since 1970.
func WriteAndExit(root *cobra.Command) { exit(write(root, os.Args[1:])) }

// DescribeAndExit is a whole program: PROGRAM DIR. It writes what a command can do for
// other programs to read: NAME.yaml, and NAME_SUB.yaml for each of its commands.
func DescribeAndExit(root *cobra.Command) { exit(describe(root, os.Args[1:])) }

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func describe(root *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments, want DIR", len(args))
	}
	root.DisableAutoGenTag = true
	return doc.GenYamlTree(root, args[0])
}

func write(root *cobra.Command, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("got %d arguments, want DIR VERSION SECONDS", len(args))
	}
	seconds, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return fmt.Errorf("the date: %w", err)
	}
	return Write(root, Edition{Version: args[1], Date: time.Unix(seconds, 0)}, args[0])
}
