package controlplane

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
	"github.com/spillway-ci/spillway/server"
)

// warnings are the lines of a log that somebody would be called for.
func (j *journal) warnings() (lines []string) {
	for line := range strings.Lines(j.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			lines = append(lines, line)
		}
	}
	return lines
}

// A start at which everything is well warns about nothing, and names no pool that isn't.
func TestAGoodStartWarnsAboutNothing(t *testing.T) {
	g, url := newGitLab(t)
	g.AddProject("team/app")
	id, _ := g.AddRunner(gitlabtest.RunnerSpec{Tags: []string{"docker"}})
	cfg := configure(t, fmt.Sprintf("{url: %q, api_token: %s}", url, secretFile(t, g.AddAPIToken(gitlabtest.Admin))), fmt.Sprintf(declared, id))
	r := run(t, cfg)
	require.Eventually(t, func() bool {
		feeds := r.feeds()
		return len(feeds) > 0 && feeds[0].Name == "gitlab" && feeds[0].Error == "" || len(feeds) > 1 && feeds[1].Name == "gitlab" && feeds[1].Error == ""
	}, within, 20*time.Millisecond)
	r.await("theirs", "looked at", func(s server.PoolStatus) bool { return !s.LastSuccess.IsZero() })
	require.Empty(t, r.log.warnings())
}

// Where GitLab can't be asked for longer than that, it is said, and not of a pool that
// has no name.
func TestNoPoolIsNamedWhereNoneIsMeant(t *testing.T) {
	cfg := configure(t, fmt.Sprintf("{url: 'http://127.0.0.1:1', api_token: %s, jobs: {every: 1s}}", secretFile(t, "glpat-x")), "mode: observe, gitlab: {runner_id: 7}")
	r := run(t, cfg)
	const missing = "no replica shows GitLab's jobs"
	require.Eventually(t, func() bool { return strings.Contains(r.log.String(), missing) }, within, 20*time.Millisecond)
	require.NotContains(t, r.log.String(), `pool=""`)
	require.NotRegexp(t, regexp.MustCompile(`pool= `), r.log.String())

	log := &journal{}
	c := &ControlPlane{log: slog.New(slog.NewTextHandler(log, nil))}
	tell := (&gitLab{c: c}).watchTrouble()
	for range 3 {
		tell("", errNotTold)
	}
	tell("linux", errNotTold)
	require.Len(t, log.warnings(), 2, "what each look meets is said once in a while")
	require.NotContains(t, log.warnings()[0], "pool=")
	require.Contains(t, log.warnings()[1], "pool=linux")
}

var errNotTold = fmt.Errorf("nobody tells")
