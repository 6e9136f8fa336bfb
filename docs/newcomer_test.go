package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// firstPages are what somebody reads who knows nothing of Spillway.
var firstPages = []string{"quickstart-aws.md", "quickstart-gcp.md", "install.md", "from-cloudwatch-lambda.md"}

// everybody knows these, or the page says what they are.
var everybody = []string{
	"AWS", "Google", "Cloud", "GitLab", "Kubernetes", "Spillway", "Linux", "Amazon Linux", "Go", "HTTPS", "CPU", "README", "DNS", "Slack", "Runner", "Runners",
	"CI", "VM", "JSON", "SIGHUP", "READMEs", "Agent", "Ops", "Logging", "Private", "Access", "MIN", "MAX", "STEP", "Then", "Fedora", "Debian",
}

// glossary are the words of a part of the glossary, or of all of it, as they stand in
// its tables: several in a cell are separated by commas.
func glossary(t *testing.T) (words []string) {
	t.Helper()
	for _, row := range table(read(t, "glossary.md"), "word") {
		words = append(words, strings.Split(row[0], ", ")...)
	}
	require.Greater(t, len(words), 60)
	return words
}

func TestTheGlossaryHasEachWordOnce(t *testing.T) {
	words := glossary(t)
	slices.Sort(words)
	require.Equal(t, len(words), len(slices.Compact(slices.Clone(words))), "a word has one meaning: %v", words)
	// The words of the architecture are used everywhere.
	_, part, found := strings.Cut(read(t, "../ARCHITECTURE.md"), "## Words\n")
	require.True(t, found)
	part, _, _ = strings.Cut(part, "\n## ")
	for _, row := range table(part, "word") {
		for word := range strings.SplitSeq(row[0], ", ") {
			require.Contains(t, words, word)
		}
	}
}

// The columns of `spillwayctl pools` are words of the glossary.
func TestColumnsAreWords(t *testing.T) {
	words := strings.Join(glossary(t), ",")
	header := strings.Split(read(t, "../cmd/spillwayctl/testdata/pools.golden"), "\n")[1]
	for _, column := range strings.Fields(strings.ToLower(header)) {
		if column = strings.TrimSuffix(column, "s"); slices.Contains([]string{"min-max", "reason", "decided", "take"}, column) {
			continue // bounds of the policy; operating.md has all reasons; when; its capability
		}
		require.Contains(t, words, column)
	}
}

var (
	inTicks  = regexp.MustCompile("`[^`]*`")
	linked   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	sentence = regexp.MustCompile(`(?m)(^[-|\d.]* *\**|[.:?!|(] +\**|^#+ )[A-Z][a-z]*\b`)
	proper   = regexp.MustCompile(`\b[A-Za-z]*[A-Z][A-Za-z0-9]*(?:-\d+)?\b`)
)

// prose is a page without code and links: who follows a link finds out.
func prose(page string) string {
	return linked.ReplaceAllString(inTicks.ReplaceAllString(fence.ReplaceAllString(page, ""), "``"), "")
}

// unknown are the names in a page that nobody has explained.
func unknown(page string, explained []string) (words []string) {
	text := prose(page)
	for _, known := range explained {
		if strings.Contains(known, " ") {
			text = strings.ReplaceAll(text, known, "")
		}
	}
	for _, word := range proper.FindAllString(sentence.ReplaceAllString(text, "$1"), -1) {
		if !slices.Contains(explained, word) && !slices.Contains(everybody, word) {
			words = append(words, word)
		}
	}
	return words
}

// Whoever reads the first pages meets no name that is neither explained in the glossary
// nor a link, and the way to the glossary stands at the beginning.
func TestNewcomersMeetNoUnknownName(t *testing.T) {
	explained := glossary(t)
	for _, page := range firstPages {
		text := read(t, page)
		require.Empty(t, unknown(text, explained), page)
		if page != "quickstart-gcp.md" {
			begin, _, _ := strings.Cut(text, "\n## ")
			require.Contains(t, begin, "(glossary.md", page)
		}
	}
	// The check must be able to fail.
	require.Equal(t, []string{"FooBar", "XYZ"}, unknown("Use the FooBar of a VPC and the XYZ.", explained))
}

// outside are names in the quick start that nothing of ours has, and where they are from.
var outside = map[string]string{
	"arm64":                          "Go's name of an architecture",
	"terraform.tfvars":               "Terraform's file of values",
	"ARN":                            "what `aws secretsmanager create-secret` prints",
	"/var/log/cloud-init-output.log": "cloud-init's log",
	"aws":                            "AWS's command line", "jq": "the program", "openssl": "the program", "make": "the program",
}

// Each file, path, setting, variable and name that the quick start mentions is there.
func TestTheQuickstartNamesWhatExists(t *testing.T) {
	page := read(t, "quickstart-aws.md")
	var there strings.Builder // all that such a name may stand in
	for _, m := range fence.FindAllStringSubmatch(page+read(t, "pki.md"), -1) {
		there.WriteString(m[2])
	}
	files, err := filepath.Glob("../terraform/modules/aws-*/*.tf")
	require.NoError(t, err)
	scripts, err := filepath.Glob("../terraform/modules/aws-*/files/*")
	require.NoError(t, err)
	examples, err := filepath.Glob("../terraform/examples/aws/*.tf")
	require.NoError(t, err)
	expand := strings.NewReplacer("${var.name}", "spillway", "${var.pool_name}", "linux-spot")
	for _, file := range slices.Concat(files, scripts, examples) {
		there.WriteString(expand.Replace(read(t, file)))
	}
	used := map[string]bool{}
	for _, span := range inTicks.FindAllString(fence.ReplaceAllString(page, ""), -1) {
		name := strings.Trim(span, "`")
		if outside[name] != "" {
			used[name] = true
			continue
		}
		if line.MatchString(name) || strings.HasPrefix(name, "terraform ") {
			continue // a command: others look at those
		}
		_, err := os.Stat(filepath.Join("../terraform/examples/aws", name))
		require.True(t, err == nil || mentions(there.String(), name), "the page names `%s`, and nothing has that", name)
	}
	require.Len(t, used, len(outside), "the list of what is from outside has more than the page")
	require.False(t, mentions(there.String(), "group_name"), "the check must be able to fail")
}

// mentions reports whether a text has a name as a word.
func mentions(text, name string) bool {
	return regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(name) + `($|[^\w-])`).MatchString(text)
}

var (
	quotedText = regexp.MustCompile(`'[^']*'`)
	variableOf = regexp.MustCompile(`\$\{?(\w+)`)
	assigned   = regexp.MustCompile(`(?:^|[\s(])(\w+)=|for (\w+) in`)
	readFile   = regexp.MustCompile(`(?:--rawfile \w+|--ca-file|TOKEN_FILE=|sha256sum) ?([\w./-]+)`)
	writtenTo  = regexp.MustCompile(`> ?([\w.-]+)`)
)

// What a command of the quick start reads, an earlier one has written, or the list of
// what one needs names it.
func TestTheQuickstartUsesNothingBeforeItIsThere(t *testing.T) {
	page := read(t, "quickstart-aws.md")
	_, need, found := strings.Cut(page, "## 1. What you need\n")
	require.True(t, found)
	need, _, _ = strings.Cut(need, "\n## ")
	set, files := map[string]bool{}, map[string]bool{}
	for _, span := range inTicks.FindAllString(need, -1) {
		files[strings.Trim(span, "`")] = true
	}
	for _, name := range []string{"controlplane", "spillway-agent", "plugins/spillway-provider-ec2asg"} { // make build
		files["bin/"+name] = true
	}
	for _, text := range blocks(page, "sh") {
		for _, m := range assigned.FindAllStringSubmatch(text, -1) {
			set[m[1]+m[2]] = true
		}
		for _, m := range writtenTo.FindAllStringSubmatch(text, -1) {
			files[m[1]] = true
		}
		for _, m := range variableOf.FindAllStringSubmatch(quotedText.ReplaceAllString(text, ""), -1) {
			require.True(t, set[m[1]], "$%s is used and was never set", m[1])
		}
		for _, m := range readFile.FindAllStringSubmatch(text, -1) {
			require.True(t, files[m[1]], "%s is read and nobody has written it", m[1])
		}
	}
	require.GreaterOrEqual(t, len(set), 6)
}

// Each path that the page about installing names is one that a package, the image or the
// chart has.
func TestInstallNamesWhatIsInstalled(t *testing.T) {
	var there strings.Builder
	for _, pattern := range []string{"../internal/release/*.go", "../deploy/*/*", "../deploy/*/*/*", "../deploy/*/*/*/*"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
				there.WriteString(filepath.Base(file) + "\n" + read(t, file))
			}
		}
	}
	named := 0
	for _, span := range inTicks.FindAllString(fence.ReplaceAllString(read(t, "install.md"), ""), -1) {
		if name := strings.Trim(span, "`"); strings.HasPrefix(name, "/") {
			named++
			require.Contains(t, there.String(), name)
		}
	}
	require.Greater(t, named, 10)
	require.NotContains(t, there.String(), "/etc/spillway/tokns", "the check must be able to fail")
}
