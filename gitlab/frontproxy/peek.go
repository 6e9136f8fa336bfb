package frontproxy

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// peek reads a request's body, up to maxPeekBytes, and puts it back so that exactly the
// same is passed on. whole says that this was all of it.
func peek(w http.ResponseWriter, r *http.Request) (head []byte, whole bool, err error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, true, nil
	}
	// A client that doesn't send what it announced would keep us for ever. Not every
	// ResponseWriter has deadlines; one that has none is a test's.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(peekTimeout))
	head, whole, err = readHead(r.Body, maxPeekBytes)
	if err != nil {
		return nil, false, err // the deadline stays: see sayAndClose
	}
	_ = control.SetReadDeadline(time.Time{})
	r.Header.Del("Expect") // the client has sent it already
	if !whole {
		r.Body = joined{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
		return head, false, nil
	}
	if len(r.Trailer) > 0 { // they travel only with a body of unknown length
		r.Body = joined{bytes.NewReader(head), r.Body}
		return head, true, nil
	}
	setBody(r, head)
	return head, true, nil
}

// setBody has body sent on, and nothing else.
func setBody(r *http.Request, body []byte) {
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil, nil
	// So that a connection that GitLab has closed meanwhile, before anything was sent, is
	// no failure.
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
}

// readHead reads up to limit bytes, and says whether that was all there is.
func readHead(from io.Reader, limit int) (head []byte, whole bool, err error) {
	head, err = io.ReadAll(io.LimitReader(from, int64(limit)+1))
	if err != nil {
		return head, false, err
	}
	return head, len(head) <= limit, nil
}
