package frontproxy

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClassify(t *testing.T) {
	const post, put, patch, get, del = http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodGet, http.MethodDelete
	tests := []struct {
		method, path, root string
		what               kind
		job                string
	}{
		{post, "/api/v4/jobs/request", "", jobRequest, ""},
		{post, "/api/v4/jobs/request/", "", jobRequest, ""},
		{post, "/api/v4/jobs/request.json", "", jobRequest, ""},
		{post, "//api///v4/jobs//request", "", jobRequest, ""},
		{post, "/api/v4/jobs/%72equest", "", jobRequest, ""},
		{post, "/api/v4/jobs%2Frequest", "", jobRequest, ""},
		{post, "/api/v4/x/../jobs/./request", "", jobRequest, ""},
		{post, "/gitlab/api/v4/jobs/request", "/gitlab", jobRequest, ""},
		{post, "/git%6Cab/api/v4/jobs/request/", "/gitlab", jobRequest, ""},
		{post, "/a/b/api/v4/jobs/request", "/a/b", jobRequest, ""},
		{post, "/api/v4/jobs/request", "/gitlab", other, ""},
		{post, "/gitlab/api/v4/jobs/request", "", other, ""},
		{get, "/api/v4/jobs/request", "", other, ""},
		{post, "/api/v4/jobs/requests", "", other, ""},
		{post, "/api/v4/jobs/request/7", "", other, ""},
		{post, "/api/v3/jobs/request", "", other, ""},
		{put, "/api/v4/jobs/7", "", jobUpdate, "7"},
		{put, "/api/v4/jobs/007/", "", jobUpdate, "7"},
		{put, "/api/v4/jobs/7.json", "", jobUpdate, "7"},
		{put, "/gitlab/api/v4/jobs/7", "/gitlab", jobUpdate, "7"},
		{put, "/api/v4/jobs/x", "", other, ""},
		{put, "/api/v4/jobs/0", "", other, ""},
		{put, "/api/v4/jobs/-7", "", other, ""},
		{put, "/api/v4/jobs/99999999999999999999", "", other, ""},
		{put, "/api/v4/projects/7/jobs/8", "", other, ""},
		{patch, "/api/v4/jobs/7/trace", "", jobContact, "7"},
		{patch, "/api/v4/jobs/7/trace/", "", jobContact, "7"},
		{put, "/api/v4/jobs/7/x", "", jobContact, "7"},
		{post, "/api/v4/jobs/7/artifacts", "", jobContact, "7"},
		{post, "/api/v4/runners/verify", "", verify, ""},
		{post, "/gitlab/api/v4/runners/verify/", "/gitlab", verify, ""},
		{get, "/api/v4/runners/verify", "", other, ""},
		{del, "/api/v4/runners/managers", "", deleteManager, ""},
		{del, "/api/v4/runners/7/managers", "", other, ""},
		{get, "/api/v4/runners/router/discovery", "", discovery, ""},
		{post, "/api/v4/runners/router/discovery", "", other, ""},
		{get, "/group/project.git/info/refs", "", other, ""},
		{get, "/", "", other, ""},
		{get, "", "", other, ""},
		{post, "/" + strings.Repeat("../", 400) + "api/v4/jobs/request", "", jobRequest, ""},
	}
	for _, tt := range tests {
		u, err := url.ParseRequestURI(tt.path)
		if err != nil {
			u = &url.URL{Path: tt.path}
		}
		what, job := classify(tt.method, u.Path, tt.root)
		require.Equal(t, tt.what, what, "%s %s below %q", tt.method, tt.path, tt.root)
		require.Equal(t, tt.job, string(job), "%s %s", tt.method, tt.path)
	}
}
