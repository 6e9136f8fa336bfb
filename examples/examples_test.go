package examples_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pageLines is how long a README may be: a page.
const pageLines = 60

// stories run the commands of a folder's README, in order, and look at what comes of
// them. Folders without commands have tests of their own.
var stories = map[string]func(*stage){
	"admission":              admission,
	"admission-cel":          rulesAreChecked,
	"admission-image-policy": imagePolicy,
	"alb":                    loadBalancer,
	"grafana":                grafana,
	"laptop":                 laptop,
	"observe":                observe,
	"provider-in-60-lines":   sixtyLines,
	"provider-python":        pythonProvider,
	"python-worker":          pythonWorker,
	"route":                  route,
}

// whole: everything is played to its end, as `make examples` has it. Otherwise what takes
// long, and what other tests try too, is left out.
var whole = os.Getenv("EXAMPLES") == "whole"

// atOnce is how many examples are played side by side. They wait for processes, for
// seconds; the number of cores says nothing of how many can.
const atOnce = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: builds and runs the examples")
	}
	bin := build(t)
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, bin, name)
			story(s)
			s.requireAllPlayed()
		})
	}
}

// folders are those of the examples.
func folders(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() && e.Name() != "internal" {
			names = append(names, e.Name())
		}
	}
	require.Greater(t, len(names), 10)
	return names
}

// Each folder has a page that says what to type, somebody who types it, and a line in
// the list.
func TestEachFolderIsAnExample(t *testing.T) {
	list := read(t, "README.md")
	for _, name := range folders(t) {
		text := read(t, filepath.Join(name, "README.md"))
		require.LessOrEqual(t, strings.Count(text, "\n"), pageLines, "%s/README.md is more than a page", name)
		require.Regexp(t, `^# \S`, text, "%s/README.md begins with what it is", name)
		require.Contains(t, list, "]("+name+"/README.md)", "examples/README.md does not name %s", name)
		own, err := filepath.Glob(filepath.Join(name, "*_test.go"))
		require.NoError(t, err)
		require.True(t, stories[name] != nil || len(own) > 0, "nothing runs %s", name)
		require.True(t, stories[name] != nil || len(commands(text)) == 0, "nothing types the commands of %s/README.md", name)
	}
	for name := range stories {
		require.DirExists(t, name)
	}
	for _, m := range regexp.MustCompile(`\]\(([a-z0-9-]+)/README\.md\)`).FindAllStringSubmatch(list, -1) {
		require.Contains(t, folders(t), m[1])
	}
}

// commands are the indented blocks of a page; what is between fences is to be read.
func commands(page string) (blocks []string) {
	var block []string
	end := func() {
		if len(block) > 0 {
			blocks = append(blocks, strings.TrimSpace(strings.Join(block, "\n")))
		}
		block = nil
	}
	fenced, before := false, ""
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		code := strings.HasPrefix(line, "    ") && (before == "" || len(block) > 0)
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case !fenced && code:
			block = append(block, line[4:])
		case line != "":
			end()
		}
		before = line
	}
	end()
	return slices.DeleteFunc(blocks, func(b string) bool { return b == "" })
}

func TestCommandsOfAPage(t *testing.T) {
	require.Equal(t, []string{"a\nb\n  c", "d"}, commands("# T\n\n    a\n    b\n      c\n\ntext\n\n```yaml\n    no\n```\n- list\n      more of it\n\n    d\n"))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
