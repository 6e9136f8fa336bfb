package migstub

import (
	"bufio"
	"fmt"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
)

const (
	// batchPath is where several calls can be made at once, as gcloud does
	// (compute/docs/api/how-tos/batch).
	batchPath = "/batch/compute/v1"
	// maxBatch is how many calls one batch may hold [calls].
	maxBatch = 1_000
	// maxBatchBody is the largest body of a batch [bytes].
	maxBatchBody = 16 << 20
)

// batch answers the calls of a multipart request one after another; each is a call
// like any other, with its own faults.
func (c *Cloud) batch(w http.ResponseWriter, r *http.Request) {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		invalid("a batch is multipart/mixed").write(w)
		return
	}
	calls := multipart.NewReader(http.MaxBytesReader(w, r.Body, maxBatchBody), params["boundary"])
	answers := multipart.NewWriter(w)
	w.Header().Set("Content-Type", "multipart/mixed; boundary="+answers.Boundary())
	defer func() { _ = answers.Close() }()
	for range maxBatch {
		part, err := calls.NextPart()
		if err != nil {
			return // the end, or a call that is cut off
		}
		inner, err := http.ReadRequest(bufio.NewReader(part))
		if err != nil || inner.URL.Path == batchPath { // no batch in a batch
			return
		}
		c.batched(answers, part.Header.Get("Content-ID"), inner.WithContext(r.Context()))
	}
}

func (c *Cloud) batched(answers *multipart.Writer, id string, r *http.Request) {
	rec := newRecorder()
	c.ServeHTTP(rec, r)
	part, err := answers.CreatePart(textproto.MIMEHeader{
		"Content-Type": {"application/http"},
		"Content-ID":   {strings.Replace(id, "<", "<response-", 1)},
	})
	if err != nil {
		return // the caller has gone
	}
	_, _ = fmt.Fprintf(part, "HTTP/1.1 %d %s\r\n", rec.status, http.StatusText(rec.status))
	_ = rec.header.Write(part)
	_, _ = fmt.Fprintf(part, "Content-Length: %d\r\n\r\n%s", rec.body.Len(), rec.body.String())
}
