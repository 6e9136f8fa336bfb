package migstub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// ErrNoAnswer is what a call gets from Transport whose connection broke or that
// hangs: on a virtual clock nobody can wait, so the caller counts the time.
var ErrNoAnswer = errors.New("migstub: no answer")

// Transport calls the Cloud directly, on the caller's goroutine and without a
// socket. Every address is the Cloud's.
func (c *Cloud) Transport() http.RoundTripper { return transport{c} }

type transport struct{ cloud *Cloud }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if err := r.Context().Err(); err != nil {
		return nil, fmt.Errorf("migstub: %w", err)
	}
	defer func() {
		switch e := recover(); e {
		case nil:
		case http.ErrAbortHandler:
			resp, err = nil, ErrNoAnswer
		default:
			panic(e)
		}
	}()
	in := r.Clone(r.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer func() { _ = in.Body.Close() }()
	rec := newRecorder()
	t.cloud.ServeHTTP(rec, in)
	return &http.Response{
		Status: http.StatusText(rec.status), StatusCode: rec.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: rec.header, Body: io.NopCloser(&rec.body), ContentLength: int64(rec.body.Len()),
		Request: r,
	}, nil
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecorder() *recorder { return &recorder{header: make(http.Header), status: http.StatusOK} }

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) { r.status = status }

func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
