package migstub

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"
)

// request is a call that was understood.
type request struct {
	now    time.Time
	method *method
	names  map[string]string // of the path
	query  url.Values
	body   []byte
	fail   string // the code that its operation ends with
}

// handler answers a request, with the lock held: the answer is encoded later, so
// it is a value of its own.
type handler func(c *Cloud, r *request) (any, *apiError)

// outcome is what a call gets, as far as it is decided with the lock held.
type outcome struct {
	answer any
	err    *apiError
	do     Do // instead of answering
}

// ServeHTTP implements [http.Handler].
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Path == batchPath {
		c.batch(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		invalid("the request's body could not be read").write(w)
		return
	}
	req := &request{query: r.URL.Query(), body: body}
	var refused *apiError
	req.method, req.names, refused = route(r.Method, r.URL.Path)
	if refused == nil {
		refused = req.check()
	}
	var out outcome
	c.do(func(now time.Time) {
		req.now = now
		out = c.decide(req, refused)
		c.calls.add(req.call(r, out))
		c.advance(now) // what takes no time is done
	})
	c.poke()
	if out.do != "" {
		c.misbehave(w, r, out.do)
		return
	}
	if out.err != nil {
		out.err.write(w)
		return
	}
	if wait, ok := out.answer.(*waiting); ok {
		out.answer = c.wait(r.Context(), wait)
	}
	writeJSON(w, http.StatusOK, out.answer)
}

// misbehave is what a call gets instead of an answer.
func (c *Cloud) misbehave(w http.ResponseWriter, r *http.Request, do Do) {
	if do == DoGarbage {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		_, _ = io.WriteString(w, "{garbage") // the caller may have gone
		return
	}
	if do == DoHang && !c.virtual {
		<-r.Context().Done()
	}
	panic(http.ErrAbortHandler) // the connection breaks
}

func (r *request) check() *apiError {
	if err := r.method.checkQuery(r.query); err != nil {
		return err
	}
	if id := r.query.Get("requestId"); id != "" && !isUUID(id) {
		return invalid("Invalid value for field 'requestId': '%.100s'. Must be a valid UUID, and not the zero UUID.", id)
	}
	return r.method.checkBody(r.body)
}

// decide answers a call, unless a limit or a fault comes before.
func (c *Cloud) decide(r *request, refused *apiError) outcome {
	if c.overRate(r.now) {
		status := c.rate.Status
		if status == 0 {
			status = http.StatusForbidden
		}
		return outcome{err: tooMany(status)}
	}
	if refused != nil {
		return outcome{err: refused}
	}
	if c.chance(c.faults.ThrottlePct / 100) {
		return outcome{err: tooMany(http.StatusForbidden)}
	}
	f := c.faultOf(r.now, r.method.ID)
	switch {
	case f == nil:
	case f.Do == DoError:
		err := errorf(f.status(), f.Reason, "migstub: planned fault")
		if f.Reason == "rateLimitExceeded" {
			err = tooMany(f.status())
		}
		err.retryAfter = f.RetryAfter
		return outcome{err: err}
	case f.Do == DoOperation:
		r.fail = f.Reason
	case f.Do != DoLose:
		return outcome{do: f.Do}
	}
	if r.names["project"] != c.project {
		return outcome{err: notFound("projects/" + r.names["project"])}
	}
	answer, err := r.method.handle(c, r)
	if f != nil && f.Do == DoLose {
		return outcome{answer: answer, err: err, do: DoLose}
	}
	return outcome{answer: answer, err: err}
}

func (r *request) call(h *http.Request, out outcome) Call {
	call := Call{
		At: r.now, Group: r.names["instanceGroupManager"], Path: h.URL.Path, Query: h.URL.RawQuery,
		Body: string(r.body), Status: http.StatusOK,
	}
	if r.method != nil {
		call.Op = r.method.ID
	}
	switch {
	case out.do != "":
		call.Status, call.Reason = 0, string(out.do)
	case out.err != nil:
		call.Status, call.Reason = out.err.status, out.err.reason
	}
	return call
}

func writeJSON(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	body, err := json.Marshal(answer)
	if err != nil {
		panic("migstub: " + err.Error()) // every answer is a struct of strings and numbers
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller may have gone
}

// isUUID reports whether id is one, other than the zero UUID.
func isUUID(id string) bool {
	zero := true
	for i, r := range []byte(id) {
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if r != '-' {
				return false
			}
		case r >= '0' && r <= '9', r >= 'a' && r <= 'f', r >= 'A' && r <= 'F':
			zero = zero && r == '0'
		default:
			return false
		}
	}
	return len(id) == 36 && !zero
}
