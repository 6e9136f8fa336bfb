package docs_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/config"
)

// What is copied from the pages about GitLab is taken as it is.
func TestGitLabPagesHaveValidConfigurations(t *testing.T) {
	for page, pools := range map[string]int{"gitlab.md": 1, "from-cloudwatch-lambda.md": 2} {
		found := blocks(read(t, page), "yaml")
		require.Len(t, found, pools, page)
		for _, text := range found {
			_, err := config.Parse(page, []byte(text))
			require.NoError(t, err, "%s\n%s", page, text)
		}
	}
	// The first pool of the migration is told that it will never scale in, as the page says.
	c, err := config.Parse("f", []byte(blocks(read(t, "from-cloudwatch-lambda.md"), "yaml")[0]))
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(c.Warnings(), func(p config.Problem) bool { return regexp.MustCompile("cannot_drain").MatchString(p.Text) }))
}

// Metrics that the pages name exist.
func TestMetricsExist(t *testing.T) {
	known := map[string]bool{}
	sources, err := filepath.Glob("../server/metrics*.go")
	require.NoError(t, err)
	for _, source := range sources {
		text := read(t, source)
		for _, name := range regexp.MustCompile(`"(spillway_[a-z_]+[a-z])"`).FindAllStringSubmatch(text, -1) {
			known[name[1]] = true
		}
		for _, number := range regexp.MustCompile(`number\("([a-z_]+)"`).FindAllStringSubmatch(text, -1) {
			known["spillway_pool_"+number[1]] = true
		}
	}
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	named := 0
	for _, page := range pages {
		for _, name := range regexp.MustCompile("`(spillway_[a-z_]+)[`{]").FindAllStringSubmatch(read(t, page), -1) {
			named++
			require.True(t, known[name[1]], "%s: there is no metric %s", page, name[1])
		}
	}
	require.GreaterOrEqual(t, named, 5)
}

// served are the paths of listen.gitlab that an ingress sends here.
var served = []string{"/api/v4/runners/router/discovery", "/runners/router"}

func TestIngressExamplesNameWhatIsServed(t *testing.T) {
	var traefik struct {
		HTTP struct {
			Routers map[string]struct {
				Rule    string
				Service string
			}
			Services map[string]any
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "../examples/traefik/dynamic.yaml")), &traefik))
	var rules []string
	for name, r := range traefik.HTTP.Routers {
		require.Contains(t, traefik.HTTP.Services, r.Service, name)
		if r.Service == "spillway" {
			rules = append(rules, regexp.MustCompile("Path\\(`([^`]+)`\\)").FindStringSubmatch(r.Rule)[1])
		}
	}
	require.ElementsMatch(t, served, rules)

	var alb []struct {
		Priority   int
		Conditions []struct{ PathPatternConfig struct{ Values []string } }
		Actions    []struct{ Type, TargetGroupArn string }
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "../examples/alb/rules.json")), &alb))
	require.Equal(t, served, alb[0].Conditions[0].PathPatternConfig.Values)
	require.Less(t, alb[0].Priority, alb[1].Priority, "the first rule that matches is taken")

	nginx := read(t, "../examples/nginx/gitlab.conf")
	for _, path := range served {
		require.Contains(t, nginx, "location = "+path+" {")
	}
}
