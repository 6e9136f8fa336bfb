package main

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// small are sources with one of each: pages, a reference, a file that is shown, an image.
func small() fstest.MapFS {
	files := map[string]string{
		"docs/site.yaml": "title: Boats\nabout: All of them.\nsections:\n- title: First\n  pages:\n  - {page: README.md, about: start}\n  - {page: docs/sail.md, title: Sails}\n" +
			"- title: More\n  pages:\n  - {each: \"examples/*/README.md\"}\n  - {made: knots}\n",
		"README.md": "# Boats\n\nSee [docs/sail.md](docs/sail.md), its [wind](docs/sail.md#in-the-wind), [sail.md](docs/sail.md#in-the-wind-1), [the plan](plan.txt), and [there](https://example.com/).\n",
		"docs/sail.md": "# To sail\n\n![a boat](boat.png)\n\n## In the `wind`\n\nGo <https://example.com>. [Up](#in-the-wind), [home](../README.md).\n\n| a | b |\n|---|---|\n| keel | `x < y` |\n\n" +
			"```sh\nhoist --all\n```\n\n## In the wind\n\nAgain.\n",
		"docs/boat.png":             "picture",
		"examples/canoe/README.md":  "# Canoe\n\nBack to [sails](../../docs/sail.md#in-the-wind-1).\n",
		"examples/dinghy/README.md": "# Dinghy\n\nSmall.\n",
		"plan.txt":                  "<plan> & more\n",
	}
	sources := fstest.MapFS{}
	for path, text := range files {
		sources[path] = &fstest.MapFile{Data: []byte(text)}
	}
	return sources
}

func made(text string) map[string]reference {
	return map[string]reference{"knots": func() ([]byte, error) { return []byte(text), nil }}
}

func TestASiteHasAllPagesInTheirOrder(t *testing.T) {
	s, err := build(small(), made("# Knots\n\nBowline.\n"), "v1")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"index.html", "readme.html", "sail.html", "examples/canoe/index.html", "examples/dinghy/index.html", "reference-knots.html",
		"source/plan.txt.html", "images/docs/boat.png", "assets/style.css", "assets/search.js", "assets/index.js",
	}, slices.Collect(maps.Keys(s)))
	titles := regexp.MustCompile(`<li><a href="[^"]*">([^<]*)</a>`).FindAllStringSubmatch(string(s["index.html"]), -1)
	var order []string
	for _, m := range titles[:5] {
		order = append(order, m[1])
	}
	require.Equal(t, []string{"Boats", "Sails", "Canoe", "Dinghy", "Knots"}, order)

	start := string(s["readme.html"])
	require.Contains(t, start, `<a href="sail.html">To sail</a>`, "a file's name is none in the site")
	require.Contains(t, start, `<a href="sail.html#in-the-wind">wind</a>`)
	require.Contains(t, start, `<a href="sail.html#in-the-wind-1">In the wind</a>`)
	require.Contains(t, start, `<a href="source/plan.txt.html">the plan</a>`)
	require.Contains(t, start, `<a href="https://example.com/">there</a>`)
	require.Contains(t, start, `<a rel="next" href="sail.html">`)
	require.Contains(t, string(s["source/plan.txt.html"]), "&lt;plan&gt; &amp; more")
	require.Contains(t, string(s["source/plan.txt.html"]), `href="../assets/style.css"`)
	require.Contains(t, string(s["examples/canoe/index.html"]), `<a href="../../sail.html#in-the-wind-1">sails</a>`)

	page := string(s["sail.html"])
	require.Contains(t, page, `<h2 id="in-the-wind">In the <code>wind</code>`)
	require.Contains(t, page, `<h2 id="in-the-wind-1">`)
	require.Contains(t, page, `<li class="level2"><a href="#in-the-wind">In the wind</a></li>`)
	require.Contains(t, page, `<img src="images/docs/boat.png" alt="a boat">`)
	require.Contains(t, page, `<li><a href="sail.html" aria-current="page">Sails</a></li>`)
	require.Contains(t, page, "<code>x &lt; y</code>")
}

func TestTheIndexHasWhatIsUnderEachHeading(t *testing.T) {
	s, err := build(small(), made("# Knots\n\nBowline.\n"), "v1")
	require.NoError(t, err)
	script := string(s["assets/index.js"])
	script = script[strings.Index(script, "["):strings.LastIndex(script, ";")]
	var all []found
	require.NoError(t, json.Unmarshal([]byte(script), &all))
	require.Contains(t, all, found{Page: "To sail", Heading: "In the wind", URL: "sail.html#in-the-wind", Text: "Go https://example.com. Up, home. a b keel x < y hoist --all"})
	require.Contains(t, all, found{Page: "Knots", URL: "reference-knots.html", Text: "Bowline."})
}

// Each mistake is said, with the page that has it.
func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct{ path, from, to, want string }{
		"a page that is not there":      {"README.md", "docs/sail.md)", "docs/swim.md)", "README.md: links to docs/swim.md: it is not in docs/site.yaml"},
		"a file that is not there":      {"README.md", "plan.txt", "map.txt", "README.md: links to map.txt: open map.txt"},
		"a heading that is not there":   {"README.md", "#in-the-wind", "#becalmed", "README.md: links to docs/sail.md#becalmed, and docs/sail.md has no such heading"},
		"a heading of the page's own":   {"docs/sail.md", "(#in-the-wind)", "(#becalmed)", "docs/sail.md: links to #becalmed, and has no such heading"},
		"a heading in what is no page":  {"README.md", "plan.txt", "plan.txt#1", "a file that is no page has no headings"},
		"a forgotten page":              {"docs/site.yaml", "  - {page: docs/sail.md, title: Sails}\n", "", "docs/sail.md is not in docs/site.yaml"},
		"a page that was removed":       {"docs/site.yaml", "docs/sail.md", "docs/gone.md", "open docs/gone.md"},
		"a page that is there twice":    {"docs/site.yaml", "title: Sails}\n", "title: Sails}\n  - {page: docs/sail.md}\n", "docs/sail.md is in docs/site.yaml twice"},
		"a pattern of nothing":          {"docs/site.yaml", "examples/*", "samples/*", "no page is like samples/*/README.md"},
		"a reference that nobody makes": {"docs/site.yaml", "made: knots", "made: ropes", `no page "ropes"`},
		"an unknown word in the order":  {"docs/site.yaml", "title: Sails", "name: Sails", "field name not found"},
		"an image that is not there":    {"docs/sail.md", "boat.png", "ship.png", "docs/sail.md: shows ship.png"},
		"an image that none shows":      {"docs/sail.md", "![a boat](boat.png)", "", "docs/boat.png: no page shows it"},
		"an image without a text":       {"docs/sail.md", "![a boat]", "![]", "has no text for those who don't see it"},
		"an image of somebody's server": {"docs/sail.md", "(boat.png)", "(https://example.com/boat.png)", "asks no network"},
		"HTML":                          {"README.md", "See", "<script>1</script> See", "is HTML"},
		"a block of HTML":               {"README.md", "See", "<div>\n</div>\n\nSee", "is HTML"},
		"no title":                      {"README.md", "# Boats", "Boats", "does not begin with a title"},
		"two titles":                    {"docs/sail.md", "## In the wind", "# In the wind", "a second title"},
		"a file too long to be shown":   {"plan.txt", "<plan>", strings.Repeat("x", maxSource), "bytes, more than 262144"},
		"a file that is no text":        {"plan.txt", "<plan>", "\xff", "it is no text"},
	} {
		t.Run(name, func(t *testing.T) {
			sources := small()
			before := string(sources[c.path].Data)
			after := strings.Replace(before, c.from, c.to, 1)
			require.NotEqual(t, before, after, "the test changes nothing")
			sources[c.path].Data = []byte(after)
			_, err := build(sources, made("# Knots\n"), "v1")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestAFileOfTheLargestSizeIsShown(t *testing.T) {
	sources := small()
	sources["plan.txt"].Data = []byte(strings.Repeat("x", maxSource))
	_, err := build(sources, made("# Knots\n"), "v1")
	require.NoError(t, err)
}

func TestAllMistakesAreSaidAtOnce(t *testing.T) {
	sources := small()
	sources["README.md"].Data = []byte("# Boats\n\n[a](gone.txt) [b](#gone)\n")
	_, err := build(sources, made("# Knots\n"), "v1")
	require.ErrorContains(t, err, "gone.txt")
	require.ErrorContains(t, err, "#gone")
}

func TestTwiceTheSame(t *testing.T) {
	first, err := build(small(), made("# Knots\n"), "v1")
	require.NoError(t, err)
	second, err := build(small(), made("# Knots\n"), "v1")
	require.NoError(t, err)
	require.Equal(t, first, second)
}

// No anchor is there twice, also where a heading is called what another one's would be.
func TestAnchorsOfHeadingsThatAreCalledTheSame(t *testing.T) {
	p := page{source: "x.md"}
	require.NoError(t, p.parse([]byte("# Same\n\n## Same 1\n\n## Same\n\n## Same\n")))
	var all []string
	for _, h := range p.headings {
		all = append(all, h.ID)
	}
	require.Equal(t, []string{"same", "same-1", "same-2", "same-3"}, all)
}

// The anchors are those that GitLab and GitHub make, so that links work there too.
func TestAnchors(t *testing.T) {
	for heading, want := range map[string]string{
		"What validate --online says": "what-validate---online-says",
		"1. What you need":            "1-what-you-need",
		"Two `pools` of `a_b`":        "two-pools-of-a_b",
		"A job's way":                 "a-jobs-way",
		"Größe, Ähnliches":            "größe-ähnliches",
		"From A → B":                  "from-a--b",
	} {
		require.Equal(t, want, slug(heading))
	}
}

func TestRelative(t *testing.T) {
	for _, c := range [][3]string{
		{"index.html", "sail.html", "sail.html"},
		{"a/b/index.html", "sail.html", "../../sail.html"},
		{"a/b/index.html", "a/c/index.html", "../c/index.html"},
		{"a/b/index.html", "a/b/x.html", "x.html"},
		{"a/index.html", "a/b/c.html", "b/c.html"},
		{"a/b/index.html", "", "../../"},
		{"index.html", "", ""},
	} {
		require.Equal(t, c[2], relative(c[0], c[1]), "%s → %s", c[0], c[1])
	}
}
