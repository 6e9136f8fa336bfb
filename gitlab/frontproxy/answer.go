package frontproxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// lastUpdateHeader is what a runner sends back as last_update in its next request.
const lastUpdateHeader = "X-GitLab-Last-Update"

// maxLastUpdateBytes bounds what is echoed into a header [bytes].
const maxLastUpdateBytes = 255

// say answers with a sentence, in the form of GitLab's API.
func say(w http.ResponseWriter, status int, sentence string) {
	body, _ := json.Marshal(map[string]string{"message": strconv.Itoa(status) + " " + sentence}) // strings always can be
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}

// sayAndClose answers a request of which the body was not taken in. Without the close, the
// server would wait for the rest of it before it answers.
func sayAndClose(w http.ResponseWriter, status int, sentence string) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(closeTimeout)) // a test's has none
	w.Header().Set("Connection", "close")
	say(w, status, sentence)
}

// noJobHeader is the header of "there is no job now": with the runner's own
// last_update, so that it doesn't believe to have seen more of the queue than it has.
func noJobHeader(h http.Header, lastUpdate string) {
	if headerValue(lastUpdate) {
		h.Set(lastUpdateHeader, lastUpdate)
	}
}

// sayNoJob answers a job request with 204.
func sayNoJob(w http.ResponseWriter, lastUpdate string) {
	noJobHeader(w.Header(), lastUpdate)
	w.WriteHeader(http.StatusNoContent)
}

// sayJob answers with a job, and tells whether the runner has it, or may have it. One that
// hangs up when all was handed to the network has it: it closes the connection, or its
// stream, as soon as it has decoded the job. See delivery.arrived.
func sayJob(w http.ResponseWriter, r *http.Request, job []byte, lastUpdate string) error {
	if err := context.Cause(r.Context()); err != nil {
		return err
	}
	noJobHeader(w.Header(), lastUpdate)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if _, err := w.Write(job); err != nil {
		return err
	}
	err := http.NewResponseController(w).Flush()
	if r.ProtoMajor >= 2 || errors.Is(err, http.ErrNotSupported) { // that writes all the same
		err = nil
	}
	return err
}

// insteadNoJob makes GitLab's answer a 204.
func insteadNoJob(resp *http.Response, lastUpdate string) {
	_ = resp.Body.Close() // whatever is left of it is not wanted
	resp.StatusCode, resp.Status = http.StatusNoContent, "204 No Content"
	resp.Header, resp.Trailer = http.Header{}, nil
	noJobHeader(resp.Header, lastUpdate)
	resp.Body, resp.ContentLength, resp.TransferEncoding = http.NoBody, 0, nil
}

// headerValue reports whether s may stand in a header.
func headerValue(s string) bool {
	if s == "" || len(s) > maxLastUpdateBytes {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// watched notices how much of an answer could be written.
type watched struct {
	http.ResponseWriter
	handed int64 // bytes that were handed over to be written
	failed bool
}

func (w *watched) Write(p []byte) (int, error) {
	w.handed += int64(len(p))
	n, err := w.ResponseWriter.Write(p)
	w.failed = w.failed || err != nil
	return n, err
}

// FlushError is how http.ResponseController flushes.
func (w *watched) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	// A writer that can't flush writes all the same.
	w.failed = w.failed || (err != nil && !errors.Is(err, http.ErrNotSupported))
	return err
}

// Unwrap is how http.ResponseController finds the rest.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// joined is a body whose head was read already.
type joined struct {
	io.Reader
	io.Closer
}
