package local_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/local"
)

// The page names every setting and placeholder, and its example is valid.
func TestThePage(t *testing.T) {
	content, err := os.ReadFile("../../docs/local.md")
	require.NoError(t, err)
	page := string(content)
	var schema struct {
		Properties map[string]struct {
			Items struct{ Properties map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(local.ConfigSchema), &schema))
	for name := range schema.Properties {
		require.Contains(t, page, "`"+name, name)
	}
	for name := range schema.Properties["groups"].Items.Properties {
		require.Regexp(t, "`(groups\\[\\]\\.)?"+name+"`", page, name)
	}
	for _, mark := range []string{"instance", "metrics_port", "work_dir", "group"} {
		require.Contains(t, page, "`{"+mark+"}`")
	}

	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindStringSubmatch(page)
	var config map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(strings.Replace(block[1], "gitlab-runner, run", "sh, run", 1)), &config))
	providertest.RunConfigs(t, fresh, providertest.ConfigCase{Config: string(object(t, config))})
}
