package main

import (
	"encoding/base64"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var picturesDir = flag.String("pictures", "", "folder for pictures of some pages")

// The site of this repository can be made. (What is asked of the commands is left out
// here: they are built for it.)
func TestTheSiteOfThisRepository(t *testing.T) {
	made := references(t.Context(), "../..")
	for _, c := range commands {
		made[c.name] = func() ([]byte, error) { return []byte("# " + c.name + "\n"), nil }
	}
	s, err := build(os.DirFS("../.."), made, "test")
	require.NoError(t, err)
	require.Greater(t, len(s), 40)
}

// whole makes the site of this repository, and returns its folder.
func whole(t *testing.T) (dir string, s site) {
	t.Helper()
	s, err := build(os.DirFS("../.."), references(t.Context(), "../.."), "test")
	require.NoError(t, err)
	dir = filepath.Join(t.TempDir(), "site")
	require.NoError(t, s.replace(dir))
	return dir, s
}

// The site of this repository can be made, opens in a browser from the disk, and does
// there what it is for.
func TestTheSiteInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: the site was not opened in a browser")
	}
	dir, s := whole(t)
	c := startChromium(t)
	at := func(path string) string { return "file://" + filepath.Join(dir, path) }

	t.Run("asks nobody for anything", func(t *testing.T) {
		for _, path := range slices.Sorted(maps.Keys(s)) {
			if strings.HasSuffix(path, ".html") {
				c.open(at(path))
			}
		}
		asked := c.requests()
		require.Greater(t, len(asked), 4*40)
		for _, url := range asked {
			require.True(t, strings.HasPrefix(url, "file://"+dir), url)
		}
	})
	t.Run("search", func(t *testing.T) { search(t, c, at) })
	t.Run("keyboard and names", func(t *testing.T) { keyboard(t, c, at) })
	t.Run("narrow", func(t *testing.T) { narrow(t, c, at) })
	t.Run("dark", func(t *testing.T) {
		c.open(at("aws.html"))
		const back = "getComputedStyle(document.body).backgroundColor"
		light := value[string](c, back)
		c.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}}, nil)
		require.NotEqual(t, light, value[string](c, back))
		c.picture(t, "dark")
		c.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{}}, nil)
	})
	require.Empty(t, c.complaints())
}

func search(t *testing.T, c *chromium, at func(string) string) {
	c.open(at("examples/laptop/index.html")) // links must lead up from there
	const shown = `[...document.querySelectorAll("#found strong")].map((e) => e.textContent)`
	require.True(t, value[bool](c, `document.getElementById("results").hidden`))
	c.key("/", "/")
	require.Equal(t, "query", value[string](c, "document.activeElement.id"), "the key leads to the search")
	require.Empty(t, value[string](c, "document.activeElement.value"), "and is not written there")
	c.call("Input.insertText", map[string]any{"text": "hold_boot_failing"}, nil)
	require.Equal(t, []string{"Operating Spillway › Why this many instances?"}, value[[]string](c, shown))
	require.Equal(t, "hold_boot_failing", value[string](c, `document.querySelector("#found mark").textContent`))
	require.Equal(t, "1 result", value[string](c, `document.getElementById("count").textContent`))
	c.picture(t, "search")
	c.expectLoad(func() { c.key("Enter", "\r") })
	require.Equal(t, at("operating.html")+"#why-this-many-instances", value[string](c, "location.href"))

	for words, want := range map[string]string{
		"terminating hook":       "Scale an Auto Scaling group › 5. Notices by a queue, hooks",
		"pools[].policy.max_age": "Settings › pools",
		"glossary spillover":     "",
		"SPILLOVER":              "How a job gets its machine › Spillover",
		"plugin check --group":   "Command spillwayctl › spillwayctl plugin check",
		"write a provider":       "Write a provider",
		"<script>alert(1)":       "",
	} {
		value[bool](c, `(() => { const q = document.getElementById("query"); q.focus(); q.value = ""; return true; })()`)
		c.call("Input.insertText", map[string]any{"text": words}, nil)
		found := value[[]string](c, shown)
		if want == "" {
			require.Empty(t, found, words)
			require.Equal(t, "Nothing has all of these words.", value[string](c, `document.getElementById("count").textContent`))
			continue
		}
		require.Contains(t, found[:min(3, len(found))], want, words)
	}
	c.key("Escape", "")
	require.True(t, value[bool](c, `document.getElementById("results").hidden`))
	require.Equal(t, "query", value[string](c, "document.activeElement.id"))
}

func keyboard(t *testing.T, c *chromium, at func(string) string) {
	c.open(at("pki.html"))
	const active = `(document.activeElement.getAttribute("aria-label") || document.activeElement.textContent || document.activeElement.id).trim()`
	c.key("Tab", "")
	require.Equal(t, "Skip to the text", value[string](c, active), "first of all")
	require.GreaterOrEqual(t, value[float64](c, "document.activeElement.getBoundingClientRect().left"), 0.0, "and it is seen")
	c.key("Enter", "\r")
	require.Equal(t, "text", value[string](c, "document.activeElement.id"))
	c.key("Tab", "")
	require.Equal(t, "Who may do what", value[string](c, active), "the first link of the text")

	// What a screen reader is told: each landmark and each control has a name.
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	c.call("Accessibility.getFullAXTree", nil, &tree)
	names := map[string][]string{}
	for _, n := range tree.Nodes {
		role, _ := n.Role.Value.(string)
		name, _ := n.Name.Value.(string)
		if !n.Ignored {
			names[role] = append(names[role], name)
		}
		if role == "link" || role == "searchbox" || role == "navigation" || role == "button" {
			require.NotEmpty(t, name, "a %s without a name", role)
		}
	}
	require.Equal(t, []string{"Search"}, names["searchbox"])
	require.ElementsMatch(t, []string{"On this page", "Before and after", "All pages"}, names["navigation"])
	require.Len(t, names["main"], 1)
	require.Len(t, names["banner"], 1)
	require.Len(t, names["contentinfo"], 1)
}

func narrow(t *testing.T, c *chromium, at func(string) string) {
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true}, nil)
	for _, page := range []string{"index.html", "aws.html", "quickstart-aws.html", "reference-settings.html", "reference-spillwayctl.html", "terraform/modules/aws-runner-pool/index.html"} {
		c.open(at(page))
		require.LessOrEqual(t, value[int](c, "document.documentElement.scrollWidth"), 360, "%s is wider than a phone", page)
	}
	c.open(at("quickstart-aws.html"))
	c.picture(t, "narrow")
	c.call("Emulation.clearDeviceMetricsOverride", nil, nil)
}

// picture keeps what is seen, if somebody wants to look at it.
func (c *chromium) picture(t *testing.T, name string) {
	t.Helper()
	if *picturesDir == "" {
		return
	}
	var shot struct{ Data string }
	c.call("Page.captureScreenshot", nil, &shot)
	text, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(*picturesDir, name+".png"), text, 0o600))
}
