package play

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

// The names of the secrets' files.
const (
	apiToken     = "api-token"     // of GitLab's API
	runnerToken  = "runner-token"  // of GitLab's runner
	sidecarToken = "sidecar-token" // with which sidecars register with us
)

// maxPageBytes bounds what is read of a page that is waited for [bytes].
const maxPageBytes = 1 << 20

// JobTag is the tag of the one runner, and of each job.
const JobTag = "docker"

// GitLab is the stand-in, with one project and one runner.
type GitLab struct {
	*gitlabtest.Server
	project int64
	secrets map[string]string
	http    *http.Server
}

// newGitLab serves where the configuration looks for its GitLab.
func newGitLab(cfg *config.Config) (*GitLab, error) {
	g := &GitLab{Server: gitlabtest.New(gitlabtest.Options{TraceEvery: time.Second})}
	g.project = g.AddProject("team/app")
	id, token := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{JobTag}})
	for i := range cfg.Pools {
		if of := cfg.Pools[i].GitLab; of != nil && of.RunnerID != 0 && of.RunnerID != id {
			return nil, fmt.Errorf("pool %s has runner_id %d, and the stand-in's runner is %d", cfg.Pools[i].Name, of.RunnerID, id)
		}
	}
	g.secrets = map[string]string{apiToken: g.AddAPIToken(gitlabtest.Admin), runnerToken: token, sidecarToken: rand.Text()}
	u, err := url.Parse(cfg.GitLab.URL)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", g.Server)
	mux.HandleFunc("GET /metrics", g.queue)
	g.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = g.http.Serve(listener) }() // until close
	return g, nil
}

func (g *GitLab) close() error {
	g.Close() // the deliveries of its webhooks
	err := g.http.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// queue is what an exporter of GitLab's queue tells a Prometheus.
func (g *GitLab) queue(w http.ResponseWriter, _ *http.Request) {
	n := g.Count()
	_, _ = fmt.Fprintf(w, "# HELP ci_jobs Jobs of CI that have not ended.\n# TYPE ci_jobs gauge\n"+
		"ci_jobs{tag=%q,status=\"pending\"} %d\nci_jobs{tag=%q,status=\"running\"} %d\n", JobTag, n.Waiting, JobTag, n.Running)
}

// Count is how many jobs there are.
type Count struct{ Waiting, Running, Ended, Failed int }

// Count counts the jobs.
func (g *GitLab) Count() (n Count) {
	for _, j := range g.Jobs() {
		switch j.Status {
		case gitlabtest.Pending:
			n.Waiting++
		case gitlabtest.Running, gitlabtest.Canceling:
			n.Running++
		case gitlabtest.Success:
			n.Ended++
		default:
			n.Ended++
			n.Failed++
		}
	}
	return n
}

// push makes jobs that take some seconds each.
func (g *GitLab) push(jobs int) {
	for i := range jobs {
		g.Enqueue(gitlabtest.JobSpec{
			Project: g.project, Tags: []string{JobTag}, Name: fmt.Sprintf("test-%d", i+1),
			Script: []string{"for step in build test pack; do echo $step; sleep 0.7; done", "echo it ran on $(uname -s)"},
		})
	}
}

// Asked is how often GitLab was asked for a job by runners themselves, and by others
// on their behalf.
func (g *GitLab) Asked() (runners, others int) {
	for _, c := range g.CallsTo(gitlabtest.RouteRequestJob) {
		if strings.Contains(c.Header.Get("User-Agent"), "gitlab-runner") {
			runners++
		} else {
			others++
		}
	}
	return runners, others
}

// answers is nil when a page can be got and has a text in it.
func answers(ctx context.Context, page, text string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPageBytes))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK || !strings.Contains(string(body), text):
		return fmt.Errorf("%s: %s, without %q", page, resp.Status, text)
	}
	return nil
}
