package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pages are the pages whose commands are run here: docs/, and those of the top folder.
// (Those of examples/ and terraform/ are run by the tests there.)
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("*.md")
	require.NoError(t, err)
	top, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	return append(found, top...)
}

// block is a block of commands of a page.
type block struct{ page, text string }

// shellBlocks are all of them.
func shellBlocks(t *testing.T) (all []block) {
	t.Helper()
	for _, page := range pages(t) {
		for _, text := range blocks(read(t, page), "sh") {
			all = append(all, block{page, text})
		}
	}
	return all
}

// way is how blocks of a page are held to be true: one of the three.
type way struct {
	page   string
	begins []string // of the blocks, which are run one after the other

	run   func(s *stage, blocks []string) // runs what the page says
	tests string                          // FOLDER.TEST, which does the same
	never string                          // why nothing here can
}

// ways has all blocks of all pages.
var ways = []way{
	{page: "../README.md", begins: []string{"make demo"}, tests: "cmd/controlplane.TestDemoEndsWithTheSummaryThatItPromises"},
	{page: "../README.md", begins: []string{"make build\nmkdir"}, run: playSixtySeconds},
	{page: "../CONTRIBUTING.md", begins: []string{"make build"}, run: playAsItIs},

	{page: "quickstart-aws.md", begins: []string{"CGO_ENABLED=0", "spot=", "export SPILLWAY_ADDR"}, run: playQuickstartOnAWS},
	{page: "quickstart-aws.md", begins: []string{"terraform init"}, tests: "docs.TestQuickstartOnAWSHasAllThatTerraformAsksFor"},
	{page: "quickstart-gcp.md", begins: []string{"gcloud config"}, never: "it needs a project"},
	{page: "quickstart-gcp.md", begins: []string{"make build", "spot=", "printf"}, run: playQuickstartOnGoogle},
	{page: "quickstart-gcp.md", begins: []string{"terraform init"}, tests: "internal/terraformtest.TestGoogle"},

	{page: "install.md", begins: []string{"sha256sum"}, tests: "internal/release.TestChecksumsAreRight"},
	{page: "install.md", begins: []string{"apt install"}, tests: "internal/release.TestDebIsInstalledRemovedAndPurged"},
	{page: "install.md", begins: []string{"skopeo"}, never: "it needs a registry and a cluster; internal/release renders the chart with these values"},

	{page: "admission.md", begins: []string{"go build", "spillwayctl admission"}, run: playAdmission},
	{page: "coordinator.md", begins: []string{"grpcurl"}, run: playCoordinator},
	{page: "coordinator.md", begins: []string{"spillwayctl coordinator"}, run: playPoolsByHand},
	{page: "debug.md", begins: []string{"spillwayctl job find"}, run: playDebug},
	{page: "jobs-api.md", begins: []string{"spillwayctl jobs list"}, run: playQuarantine},
	{page: "routing.md", begins: []string{"spillwayctl explain-job"}, run: playExplain},
	{page: "pki.md", begins: []string{"vault"}, never: "it needs a Vault; what certificates must say is tried with openssl"},
	{page: "pki.md", begins: []string{"step"}, never: "it needs a step-ca; what certificates must say is tried with openssl"},
	{page: "pki.md", begins: []string{"openssl"}, tests: "docs.TestAuthorityOfThePageWorks"},

	{page: "provider-guide.md", begins: []string{"mkdir my-provider", "spillwayctl plugin describe"}, run: playProvider},
	{page: "fleeting.md", begins: []string{"cp "}, tests: "cmd/spillwayctl.TestProbeByItsName"},
	{page: "fleeting.md", begins: []string{"spillwayctl fleeting inspect"}, tests: "cmd/spillwayctl.TestFleetingInspect"},
	{page: "fleeting.md", begins: []string{"spillwayctl plugin check"}, tests: "providers/fleeting.TestContractOverEveryShape"},

	{page: "aws.md", begins: []string{"aws autoscaling"}, tests: "docs.TestAGroupIsMadeReadyOnAWS"},
	{page: "gcp.md", begins: []string{"gcloud compute"}, never: "it needs a project; internal/migstub plays what the plugin calls, and not changes of a group's settings"},
	{page: "gcp.md", begins: []string{"gcloud iam"}, never: "it needs a project; the role is compared with what the plugin calls"},
}

// Every block of commands that somebody may copy is run by a test, or is in the list of
// those that can't be, with the reason; and the list has nothing else.
func TestEveryCommandIsRun(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: the commands of the documentation were not run")
	}
	all := shellBlocks(t)
	for _, w := range ways {
		var found []string
		for _, begins := range w.begins {
			var these []block
			these, all = cut(all, func(b block) bool { return b.page == w.page && strings.HasPrefix(b.text, begins) })
			if len(these) != 1 {
				t.Errorf("%s has %d blocks that begin with %q: mend the list of ways", w.page, len(these), begins)
				continue
			}
			found = append(found, these[0].text)
		}
		switch {
		case len(found) != len(w.begins):
		case w.tests != "":
			requireTest(t, w.tests)
		case w.never != "":
			t.Logf("NOT RUN: %s: %s\n%s", w.page, w.never, found)
		default:
			t.Run(strings.TrimSuffix(filepath.Base(w.page), ".md"), func(t *testing.T) {
				t.Parallel()
				w.run(newStage(t), found)
			})
		}
	}
	for _, b := range all {
		t.Errorf("%s: nobody runs\n%s", b.page, b.text)
	}
}

// cut cuts what is meant out of a list.
func cut(all []block, meant func(block) bool) (found, rest []block) {
	for _, b := range all {
		if meant(b) {
			found = append(found, b)
		} else {
			rest = append(rest, b)
		}
	}
	return found, rest
}

// requireTest fails without a test, FOLDER.TEST.
func requireTest(t *testing.T, name string) {
	t.Helper()
	i := strings.LastIndex(name, ".")
	files, err := filepath.Glob(filepath.Join("..", name[:i], "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		if strings.Contains(read(t, file), "\nfunc "+name[i+1:]+"(t *testing.T)") {
			return
		}
	}
	t.Errorf("there is no test %s", name)
}

var (
	opening = regexp.MustCompile("(?m)^```(.*)$")
	making  = regexp.MustCompile("(?:^|`|\\n|&& )make ([a-z][a-z0-9-]*)")
)

// languages are what a block may be in. One without a language would be run by nobody.
var languages = []string{"sh", "yaml", "json", "toml", "ini", "hcl", "text", ""} // the last closes a block

func TestBlocksSayWhatTheyAre(t *testing.T) {
	for _, page := range pages(t) {
		text := read(t, page)
		for i, m := range opening.FindAllStringSubmatch(text, -1) {
			require.Contains(t, languages, m[1], page)
			require.Equal(t, i%2 == 1, m[1] == "", "%s: a block without a language", page)
		}
		for _, line := range indented.FindAllString(fence.ReplaceAllString(text, ""), -1) {
			require.NotRegexp(t, `^ {4}\S`, line, "%s: code stands between ``` and ```", page)
		}
	}
}

// A page without a place in the order of the site is found by nobody. (All else about the
// site is looked at when it is made.)
func TestEveryPageHasItsPlace(t *testing.T) {
	order := read(t, "site.yaml")
	for _, page := range pages(t) {
		name := strings.TrimPrefix(filepath.Join("docs", page), "docs/../")
		require.Contains(t, order, "page: "+strings.TrimPrefix(name, "../"), "%s is not in site.yaml", page)
	}
}

// Targets of make that a page names exist.
func TestTargetsExist(t *testing.T) {
	makefile := read(t, "../Makefile")
	named := 0
	for _, page := range pages(t) {
		for _, m := range making.FindAllStringSubmatch(read(t, page), -1) {
			named++
			require.Regexp(t, `(?m)^`+m[1]+`:`, makefile, "%s: there is no target %s", page, m[1])
		}
	}
	require.Greater(t, named, 10)
}
