package frontproxy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
)

// fingerprintField is what we add to GitLab's answer about a runner.
const fingerprintField = "capability_fingerprint"

func machineID(s string) spillway.MachineID { return spillway.MachineID(s) }

// verify is POST /api/v4/runners/verify: the runner asks whether GitLab knows it.
func (p *Proxy) verify(w http.ResponseWriter, r *http.Request) {
	body, whole, err := peek(w, r)
	if err != nil {
		sayAndClose(w, http.StatusBadRequest, "the request did not arrive")
		return
	}
	var token string
	if whole {
		gitlab.HeadFields(body, map[string]any{"token": &token})
	}
	token = cmp.Or(token, r.Header.Get("Runner-Token"), r.URL.Query().Get("token"))
	fingerprint := ""
	if token != "" {
		fingerprint = p.opt.Fingerprint(token)
	}
	if fingerprint == "" {
		p.reverse.ServeHTTP(w, r)
		return
	}
	p.reverse.ServeHTTP(w, with(r, &exchange{plain: true, answer: func(resp *http.Response) error {
		return addFingerprint(resp, fingerprint)
	}}))
}

// addFingerprint adds a field to an answer that is a JSON object, and changes nothing
// else of it.
func addFingerprint(resp *http.Response, fingerprint string) error {
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Encoding") != "" {
		return nil
	}
	head, whole, err := readHead(resp.Body, maxVerifyBytes)
	if err != nil {
		return err
	}
	longer, ok := head, false
	if whole {
		longer, ok = withField(head, fingerprintField, fingerprint)
	}
	resp.Body = joined{io.MultiReader(bytes.NewReader(longer), resp.Body), resp.Body}
	if ok && resp.ContentLength >= 0 {
		resp.ContentLength = int64(len(longer))
		resp.Header.Set("Content-Length", strconv.Itoa(len(longer)))
	}
	return nil
}

// withField puts a field at the end of a JSON object that doesn't have it.
func withField(object []byte, name, value string) (longer []byte, ok bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil || fields == nil {
		return object, false
	}
	if _, has := fields[name]; has {
		return object, false
	}
	field, err := json.Marshal(map[string]string{name: value})
	if err != nil {
		return object, false
	}
	end := bytes.LastIndexByte(object, '}') // of the object itself: only blanks may follow
	longer = append(longer, object[:end]...)
	if len(fields) > 0 {
		longer = append(longer, ',')
	}
	longer = append(longer, field[1:len(field)-1]...)
	return append(longer, object[end:]...), true
}
