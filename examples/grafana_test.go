package examples_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/internal/tlsfiles/tlstest"
)

// panel is one of the dashboard's.
type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct{ X, Y, W, H int }
	Targets []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
		Datasource   struct{ UID string }
	}
}

// alert is a rule.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// grafana has a real Prometheus scrape a real control plane, and asks it everything that
// the dashboard and the rules ask.
func grafana(s *stage) {
	for _, program := range []string{"prometheus", "promtool"} {
		peertest.Program(s, program, "examples/grafana was not tried")
	}
	require.Contains(s, s.run(0), "SUCCESS")
	panels, alerts := readDashboard(s), readAlerts(s)
	plane := s.open("bin/controlplane serve --config " + withEverything(s))
	plane.await("msg=serving")
	p := &prometheus{s, "http://" + s.at("127.0.0.1:7790")}
	scraper := s.start()
	p.await("up{job='spillway'} == 1")
	p.await("spillway_source_last_success_timestamp_seconds")
	for _, panel := range panels {
		for _, target := range panel.Targets {
			p.knows(target.Expr, target.LegendFormat)
		}
	}
	for _, alert := range alerts {
		p.knows(alert.Expr, alert.Annotations["summary"])
	}
	p.knows("spillway_pool_info", "{{pool}}") // the dashboard's variable
	p.rulesAreWell(len(alerts))
	scraper.interrupt()
	plane.interrupt()
}

func readDashboard(s *stage) []panel {
	var dashboard struct {
		Panels     []panel `json:"panels"`
		Templating struct {
			List []struct{ Name, Type string }
		}
	}
	require.NoError(s, json.Unmarshal([]byte(read(s.T, filepath.Join("grafana", "dashboard.json"))), &dashboard))
	require.Equal(s, "datasource", dashboard.Templating.List[0].Type)
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		require.False(s, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		require.LessOrEqual(s, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				place := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(s, taken[place], "%s covers %s", p.Title, taken[place])
				taken[place] = p.Title
			}
		}
		require.True(s, p.Type == "row" || len(p.Targets) > 0, p.Title)
		for _, target := range p.Targets {
			require.Equal(s, "${datasource}", target.Datasource.UID, p.Title)
			require.True(s, len(p.Targets) == 1 || target.LegendFormat != "", "%s: which is which?", p.Title)
		}
	}
	require.Greater(s, len(dashboard.Panels), 20)
	return dashboard.Panels
}

func readAlerts(s *stage) []alert {
	var file struct {
		Groups []struct {
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	require.NoError(s, yaml.Unmarshal([]byte(read(s.T, filepath.Join("grafana", "alerts.yaml"))), &file))
	tried := read(s.T, filepath.Join("grafana", "alerts_test.yaml"))
	for _, a := range file.Groups[0].Rules {
		require.Contains(s, []string{"warning", "critical"}, a.Labels["severity"], a.Alert)
		require.NotEmpty(s, a.Annotations["summary"], a.Alert)
		require.Regexp(s, `alertname(=|: )"?`+a.Alert+`\b`, tried, "nothing tries %s", a.Alert)
	}
	require.Greater(s, len(file.Groups[0].Rules), 10)
	return file.Groups[0].Rules
}

// withEverything is a configuration with all that has metrics of its own.
func withEverything(s *stage) (path string) {
	files := tlstest.Write(s, s.dir, tlstest.New(s, "authority").Issue(s, tlstest.Request{Name: "plane"}), nil)
	secret := filepath.Join(s.dir, "secret")
	require.NoError(s, os.WriteFile(secret, []byte("a-secret-of-a-test"), 0o600))
	text := fmt.Sprintf(`listen: {runners: %q, api: %q, metrics: %q}
tick: 500ms
plugin_dir: bin/plugins
gitlab: {url: "http://127.0.0.1:1", api_token: {file: %s}, jobs: {every: 1s}}
admission: {controllers: [{name: cel}]}
cells: {name: eu, peers: [{name: us, address: "127.0.0.1:1", tls: {cert_file: %s, key_file: %s}}]}
providers:
  local: {plugin: spillway-provider-local, config: {groups: [{name: linux, max: 1, command: [/bin/sleep, "60"]}, {name: gitlab, max: 1, command: [/bin/sleep, "60"]}]}}
pools:
  - {name: linux, provider: local, capability: {tags: [linux]}, policy: {max: 1}}
  - {name: gitlab, provider: local, mode: observe, gitlab: {runner_id: 3}, capability: {tags: [docker]}, policy: {max: 1}}
`, s.at("127.0.0.1:7700"), s.at("127.0.0.1:7701"), s.at("127.0.0.1:7702"), secret, files.Cert, files.Key)
	path = filepath.Join(s.dir, "everything.yaml")
	require.NoError(s, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// prometheus is a real one.
type prometheus struct {
	*stage
	url string
}

// sample is one series of an answer.
type sample struct {
	Metric map[string]string `json:"metric"`
}

// ask asks a query, or fails the test if it is none.
func (p *prometheus) ask(query string) (answer []sample) {
	p.Helper()
	query = strings.NewReplacer("$pool", ".*", "$__rate_interval", "1m").Replace(query)
	resp, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(query))
	require.NoError(p, err)
	defer func() { _ = resp.Body.Close() }()
	var body struct {
		Error string `json:"error"`
		Data  struct {
			Result []sample `json:"result"`
		} `json:"data"`
	}
	require.NoError(p, json.NewDecoder(resp.Body).Decode(&body))
	require.Empty(p, body.Error, query)
	return body.Data.Result
}

// await waits for a query's answer, at first for Prometheus itself.
func (p *prometheus) await(query string) {
	p.Helper()
	require.Eventually(p, func() bool {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK && len(p.ask(query)) > 0
	}, patience, poll, query)
}

// soon bounds the wait for what one of the next scrapes brings.
const soon = 30 * time.Second

// some is ask for what comes with one of the next scrapes, if it is not there already.
func (p *prometheus) some(query string) (answer []sample) {
	p.Helper()
	for deadline := time.Now().Add(soon); len(answer) == 0 && time.Now().Before(deadline); {
		if answer = p.ask(query); len(answer) == 0 {
			<-time.After(poll)
		}
	}
	return answer
}

var (
	selector    = regexp.MustCompile(`\b(spillway_[a-z_]+)(\{[^}]*\})?`)
	alternative = regexp.MustCompile(`([a-z_]+)=~"([^"$]*)"`)
	grouping    = regexp.MustCompile(`\bby \(([a-z_, ]+)\)`)
	shown       = regexp.MustCompile(`\{\{ ?(?:\$labels\.)?([a-z_]+) ?\}\}`)
)

// knows checks that each metric that a query names is there, with the labels and values
// that it looks for, and that what is shown of the answer is in it.
func (p *prometheus) knows(query, text string) {
	p.Helper()
	p.ask(query)
	by := map[string]bool{}
	for _, m := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(m[1], ", ") {
			by[label] = true
		}
	}
	selectors := selector.FindAllStringSubmatch(query, -1)
	require.NotEmpty(p, selectors, query)
	for _, m := range selectors {
		found := p.some(m[0])
		require.NotEmpty(p, found, "%s\nhas %s, and there is nothing", query, m[0])
		for label := range by {
			require.Contains(p, found[0].Metric, label, "%s\n%s has no such label", query, m[1])
		}
		for _, a := range alternative.FindAllStringSubmatch(m[2], -1) {
			for value := range strings.SplitSeq(a[2], "|") {
				require.NotEmpty(p, p.some(fmt.Sprintf("%s{%s=~%q}", m[1], a[1], value)), "%s\nthere is no %s of %s", query, a[1], value)
			}
		}
	}
	for _, m := range shown.FindAllStringSubmatch(text, -1) {
		require.True(p, by[m[1]] || len(by) == 0, "%s\nshows %s, which is not in the answer", query, m[1])
	}
}

// rulesAreWell waits until Prometheus has evaluated all rules, and none has failed.
func (p *prometheus) rulesAreWell(want int) {
	p.Helper()
	require.Eventually(p, func() bool {
		resp, err := http.Get(p.url + "/api/v1/rules")
		require.NoError(p, err)
		defer func() { _ = resp.Body.Close() }()
		var body struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError string }
				}
			}
		}
		require.NoError(p, json.NewDecoder(resp.Body).Decode(&body))
		well := 0
		for _, r := range body.Data.Groups[0].Rules {
			require.Empty(p, r.LastError, r.Name)
			if r.Health == "ok" {
				well++
			}
		}
		return well == want
	}, patience, poll)
}
