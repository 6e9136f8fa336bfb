package gitlabtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

// BenchmarkList reads all pages of 100,000 pending jobs.
func BenchmarkList(b *testing.B) {
	l := newLab(b, gitlabtest.Options{})
	token := l.AddAPIToken(gitlabtest.ProjectToken, "acme/shop/web")
	l.fill(100_000)
	for b.Loop() {
		vars := object{"path": "acme/shop/web", "statuses": []string{"PENDING"}}
		for more := true; more; {
			a := l.graphql(token, pendingJobs, vars)
			require.Empty(b, a.Errors)
			info := a.Data["project"].(object)["jobs"].(object)["pageInfo"].(object)
			vars["after"], more = info["endCursor"], info["hasNextPage"] == true
		}
	}
}
