package frontproxy

import (
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/spillway-ci/spillway"
)

// kind is what a request is to us.
type kind int

const (
	other         kind = iota
	jobRequest         // POST /api/v4/jobs/request
	jobUpdate          // PUT /api/v4/jobs/:id
	jobContact         // anything else below /api/v4/jobs/:id: its trace, its artifacts
	verify             // POST /api/v4/runners/verify
	deleteManager      // DELETE /api/v4/runners/managers
	discovery          // GET /api/v4/runners/router/discovery
)

// classify tells what a request is, and which job it is about. root is GitLab's
// relative URL root, without a slash at its end; empty = none.
func classify(method, urlPath, root string) (kind, spillway.JobID) {
	rest, ok := strings.CutPrefix(path.Clean(urlPath), root+"/api/v4/")
	if !ok {
		return other, ""
	}
	rest = strings.TrimSuffix(rest, ".json") // GitLab's API takes it as the format of the answer
	switch {
	case rest == "jobs/request" && method == http.MethodPost:
		return jobRequest, ""
	case rest == "runners/verify" && method == http.MethodPost:
		return verify, ""
	case rest == "runners/managers" && method == http.MethodDelete:
		return deleteManager, ""
	case rest == "runners/router/discovery" && method == http.MethodGet:
		return discovery, ""
	}
	rest, ok = strings.CutPrefix(rest, "jobs/")
	if !ok {
		return other, ""
	}
	digits, below, deeper := strings.Cut(rest, "/")
	id, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || id <= 0 {
		return other, ""
	}
	job := spillway.JobID(strconv.FormatInt(id, 10))
	if method == http.MethodPut && !deeper && below == "" {
		return jobUpdate, job
	}
	return jobContact, job
}
