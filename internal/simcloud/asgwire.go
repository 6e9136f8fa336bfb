package simcloud

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strconv"
)

// asgWire carries the provider's requests to the stand-in, and adds the tags that
// somebody has put on single instances: the stand-in knows those of groups only.
type asgWire struct{ account *ASG }

// keepTag marks an instance as not to be touched.
const keepTag = "spillway-keep"

var taggable = regexp.MustCompile(`<instanceId>(i-[0-9a-f]+)</instanceId>`)

// Do implements the HTTP client of the provider.
func (w asgWire) Do(r *http.Request) (*http.Response, error) {
	answer, err := w.account.Stub.Client().Do(r)
	if err != nil || !w.account.anyKept() {
		return answer, err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(body, []byte("DescribeInstancesResponse")) {
		body = w.tag(body)
	}
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return answer, nil
}

// tag adds the tag to those that have it.
func (w asgWire) tag(body []byte) []byte {
	const tags, tag = "<tagSet>", "<tagSet><item><key>" + keepTag + "</key><value></value></item>"
	var out bytes.Buffer
	for {
		at := taggable.FindSubmatchIndex(body)
		if at == nil {
			out.Write(body)
			return out.Bytes()
		}
		id := string(body[at[2]:at[3]])
		out.Write(body[:at[1]])
		body = body[at[1]:]
		if g := w.account.groupOf(id); g != nil && g.births.isKept(id) {
			body = bytes.Replace(body, []byte(tags), []byte(tag), 1)
		}
	}
}

func (a *ASG) anyKept() bool {
	for _, g := range a.groups {
		if len(g.births.kept) > 0 {
			return true
		}
	}
	return false
}
