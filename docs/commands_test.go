package docs_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	code     = regexp.MustCompile("`([^`\n]+)`")
	indented = regexp.MustCompile(`(?m)^    .*$`)
	line     = regexp.MustCompile(`(?:^|[\s=/])(controlplane|spillwayctl|spillway-agent)((?:[ \t][^|;&#]*)?)$`)
	word     = regexp.MustCompile(`^[a-z][a-z-]*$`)
	option   = regexp.MustCompile(`^(--[a-z-]+|-[a-z])(?:=|$)`)
)

// invocation is a command as a page writes it.
type invocation struct {
	name string
	args []string
}

// invocations are the commands in a page's code.
func invocations(page string) (found []invocation) {
	var lines []string
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		if m[1] == "hcl" {
			continue // a name there is a variable of Terraform's
		}
		lines = append(lines, strings.Split(strings.ReplaceAll(m[2], "\\\n", " "), "\n")...)
	}
	lines = append(lines, indented.FindAllString(fence.ReplaceAllString(page, ""), -1)...)
	for _, m := range code.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		lines = append(lines, m[1])
	}
	for _, text := range lines {
		text, _, _ = strings.Cut(text, " #")
		if strings.HasPrefix(text, "sha256sum ") {
			continue // of files
		}
		if m := line.FindStringSubmatch(strings.TrimRight(text, " &")); m != nil {
			found = append(found, invocation{m[1], strings.Fields(m[2])})
		}
	}
	return found
}

// helps asks commands for their help, each once.
type helps struct {
	t      *testing.T
	folder string
	known  map[string]string
}

func (h *helps) of(name string, sub ...string) string {
	key := strings.Join(append([]string{name}, sub...), " ")
	if _, asked := h.known[key]; !asked {
		out, _ := exec.Command(filepath.Join(h.folder, name), append(sub, "--help")...).CombinedOutput() // an unknown command has another usage, or none
		h.known[key] = string(out)
	}
	return h.known[key]
}

// check finds what is wrong with an invocation; empty for nothing.
func (h *helps) check(i invocation) string {
	sub := i.args[:0:0]
	for _, arg := range i.args {
		if !word.MatchString(arg) || !strings.Contains(h.of(i.name, append(sub, arg)...), "\n  "+strings.Join(append([]string{i.name}, append(sub, arg)...), " ")) {
			break
		}
		sub = append(sub, arg)
	}
	help := h.of(i.name, sub...)
	if len(sub) == 0 && len(i.args) > 0 && strings.Contains(help, "Available Commands:") && !strings.HasPrefix(i.args[0], "-") {
		return "there is no command " + i.args[0]
	}
	for _, arg := range i.args[len(sub):] {
		if m := option.FindStringSubmatch(arg); m != nil && !regexp.MustCompile(`(?m)^ +(-\w, )?`+m[1]+`[ ,]`).MatchString(help) {
			return "there is no flag " + m[1]
		}
	}
	return ""
}

// A command that is copied from the documentation exists, with its flags.
func TestCommandsExist(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: builds the commands that the documentation names")
	}
	folder, err := programs()
	require.NoError(t, err)
	h := &helps{t, folder, map[string]string{}}
	for _, page := range append(pages(t), "../terraform/README.md") {
		for _, i := range invocations(read(t, page)) {
			if wrong := h.check(i); wrong != "" {
				t.Errorf("%s: %s %s: %s", page, i.name, strings.Join(i.args, " "), wrong)
			}
		}
	}
	for _, page := range []string{"aws.md", "gcp.md"} {
		require.GreaterOrEqual(t, len(invocations(read(t, page))), 5, page)
	}
	// The check must be able to fail.
	require.NotEmpty(t, h.check(invocation{"controlplane", []string{"relaese", "--yes"}}))
	require.NotEmpty(t, h.check(invocation{"controlplane", []string{"release", "--no"}}))
	require.NotEmpty(t, h.check(invocation{"spillwayctl", []string{"plugin", "check", "BIN", "--grup"}}))
	require.NotEmpty(t, h.check(invocation{"spillway-agent", []string{"--clout", "aws"}}))
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	anchor  = regexp.MustCompile(`[^\w -]`)
)

// Links lead to a file that is there, and to a heading of it. (That files exist is
// checked for all documents by internal/deptest; headings are not.)
func TestLinksResolve(t *testing.T) {
	for _, page := range append(pages(t), "../terraform/README.md") {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			file, place, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			text := read(t, target)
			if place == "" {
				continue
			}
			var anchors []string
			for _, h := range heading.FindAllStringSubmatch(text, -1) {
				anchors = append(anchors, strings.ReplaceAll(anchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
			}
			require.Contains(t, anchors, place, "%s links to %s", page, m[1])
		}
	}
}
