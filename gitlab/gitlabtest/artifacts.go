package gitlabtest

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"strconv"
)

// serveUpload counts what is uploaded and keeps none of it.
func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request) {
	if !s.artifactsOf(w, r, true) {
		return
	}
	n, err := countFile(r)
	if err != nil {
		message(w, http.StatusBadRequest, "400 Bad Request")
		return
	}
	s.mu.Lock()
	if j := s.mu.jobs[pathID(r, "id")]; j != nil {
		j.artifactBytes += n
	}
	s.mu.Unlock()
	answerJSON(w, http.StatusCreated, http.StatusCreated)
}

func (s *Server) artifactsOf(w http.ResponseWriter, r *http.Request, running bool) bool {
	token := cmp.Or(r.Header.Get("Job-Token"), r.URL.Query().Get("token"))
	s.noteToken(r, JobToken, token)
	s.note(r, func(c *Call) { c.JobID = pathID(r, "id") })
	s.mu.Lock()
	defer s.mu.Unlock()
	if running {
		return s.authenticateJob(w, pathID(r, "id"), token) != nil
	}
	j := s.mu.jobs[pathID(r, "id")]
	if j == nil || j.token != token {
		message(w, http.StatusForbidden, "403 Forbidden")
		return false
	}
	return true
}

// countFile is the size of the part named file of a form.
func countFile(r *http.Request) (int64, error) {
	parts, err := r.MultipartReader()
	if err != nil {
		return 0, err
	}
	var bytes int64
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return bytes, nil
		}
		if err != nil {
			return 0, err
		}
		n, err := io.Copy(io.Discard, part)
		if err != nil {
			return 0, err
		}
		if part.FormName() == "file" {
			bytes += n
		}
	}
}

// serveDownload gives as many bytes as were uploaded, but not the same ones.
func (s *Server) serveDownload(w http.ResponseWriter, r *http.Request) {
	if !s.artifactsOf(w, r, false) {
		return
	}
	view, _ := s.Job(pathID(r, "id"))
	if view.ArtifactBytes == 0 {
		message(w, http.StatusNotFound, "404 Not found")
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(view.ArtifactBytes, 10))
	_, _ = io.Copy(w, io.LimitReader(endless{}, view.ArtifactBytes))
}
