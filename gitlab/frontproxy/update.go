package frontproxy

import (
	"net/http"
	"slices"

	"github.com/spillway-ci/spillway"
)

// The states in which a runner leaves a job, and those in which GitLab says in the
// header Job-Status that nobody runs it any more.
var (
	finalStates  = []string{"success", "failed", "canceled"}
	overStatuses = []string{"success", "failed", "canceled", "skipped"}
)

// jobUpdate is PUT /api/v4/jobs/:id: the runner says how the job goes.
func (p *Proxy) jobUpdate(w http.ResponseWriter, r *http.Request, job spillway.JobID) {
	head, _, err := peek(w, r)
	if err != nil {
		sayAndClose(w, http.StatusBadRequest, "the update of the job did not arrive")
		return
	}
	said := readWord(head)
	if !slices.Contains(finalStates, said.state) && !p.confirm(w, r, job, said) {
		return
	}
	p.reverse.ServeHTTP(w, with(r, &exchange{answer: func(resp *http.Response) error {
		p.heard(job, resp.StatusCode)
		if slices.Contains(finalStates, said.state) && accepted(resp) {
			p.end(r.Context(), job)
		}
		return nil
	}}))
}

// accepted reports whether a final state has ended the job. 202 and 412 ask the runner
// to send it again, and it does so after all others but 403 and 404. Those two mean that
// the job isn't the runner's. That is its end if GitLab says that it is over, as of one
// that was canceled. Otherwise another machine may have it by now, and its booking must
// stand.
func accepted(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return true
	case http.StatusForbidden:
		return slices.Contains(overStatuses, resp.Header.Get("Job-Status"))
	default:
		return false
	}
}

// jobContact is any other request about a job: a piece of its trace, its artifacts.
func (p *Proxy) jobContact(w http.ResponseWriter, r *http.Request, job spillway.JobID) {
	p.reverse.ServeHTTP(w, with(r, &exchange{answer: func(resp *http.Response) error {
		p.heard(job, resp.StatusCode)
		return nil
	}}))
}

// heard notes a contact of the machine that has a job, unless GitLab doesn't accept
// that it was the machine. What GitLab takes shows that the job runs.
func (p *Proxy) heard(job spillway.JobID, status int) {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return
	}
	if status/100 == 2 {
		p.confirmAgain(job)
	}
	if who, known := p.seats.of(job, p.opt.Now()); known {
		p.opt.Contacts.Heard(who, p.opt.Now())
	}
}
