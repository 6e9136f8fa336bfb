package gitlab

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Limits on one call.
const (
	// callTimeout bounds a call of the API [time]. GitLab ends a GraphQL query after 30 s.
	callTimeout = time.Minute
	// MaxAnswerBytes bounds an answer of the API [bytes]. A page of 100 jobs over REST is
	// well under 1 MiB; the commit messages in it are what can grow.
	MaxAnswerBytes = 32 << 20
	// maxErrorBytes bounds what is read of an answer that is an error [bytes].
	maxErrorBytes = 64 << 10
)

// call is one request.
type call struct {
	what   string // for errors: "list the jobs of project 7"
	right  string // what a 403 means: a clause after "the token lacks a right: "
	method string
	path   string     // below the base, escaped
	query  url.Values // without secrets
	body   []byte
	header http.Header
	limit  int64 // of the answer [bytes]; 0 = MaxAnswerBytes
	// secrets are masked in texts of the answer that get into an error.
	secrets []string
}

// answer is what came, status line and headers read.
type answer struct {
	status int
	header http.Header
	body   *body
	// secrets were sent with the call: nothing keeps a server from sending them back.
	secrets []string
}

// quote is quote without the secrets of the call.
func (a answer) quote(text string) string { return quote(text, a.secrets...) }

// send makes the request and hands the answer to read, whatever its status. The body
// is drained a little and closed afterwards, so that the connection can be used again.
func (c *Client) send(ctx context.Context, k call, timeout time.Duration, read func(answer) error) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ended := func() error { // why the call was given up, if it was: by the caller, or here
		switch {
		case ctx.Err() != nil:
			return cause(ctx)
		case bounded.Err() != nil:
			return fmt.Errorf("%w: no whole answer within %s", ErrUnavailable, timeout)
		default:
			return nil
		}
	}
	u := *c.base
	u.RawQuery = k.query.Encode()
	req, err := http.NewRequestWithContext(bounded, k.method, "", bytes.NewReader(k.body))
	if err != nil {
		return fmt.Errorf("%s: %w", k.what, err)
	}
	req.URL = u.JoinPath(k.path)
	req.Host = u.Host
	for name, values := range k.header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", "application/json")
	if k.body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", k.what, cmp.Or(ended(), c.failed(err, k.secrets)))
	}
	limit := k.limit
	if limit == 0 {
		limit = MaxAnswerBytes
	}
	b := &body{r: resp.Body, left: limit, limit: limit}
	defer func() {
		_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBytes) // what is longer costs the connection, no more
		_ = resp.Body.Close()
	}()
	if err := read(answer{resp.StatusCode, resp.Header, b, k.secrets}); err != nil {
		if why := ended(); why != nil && b.err != nil { // that is what broke the reading
			err = why
		}
		return fmt.Errorf("%s: %w", k.what, err)
	}
	return nil
}

// failed puts a request that got no answer into our words.
func (c *Client) failed(err error, secrets []string) error {
	var unknown x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: the certificate of %s is from an authority that this machine does not know: set gitlab.ca_file to that authority's certificate", ErrUnavailable, c.base.Host)
	case errors.As(err, &hostname):
		return fmt.Errorf("%w: the certificate is not for %s: set gitlab.url to a name that it is for", ErrUnavailable, c.base.Host)
	case errors.As(err, &invalid):
		return fmt.Errorf("%w: the certificate of %s is not valid: %s", ErrUnavailable, c.base.Host, quote(invalid.Error()))
	case errors.As(err, &plain):
		return fmt.Errorf("%w: %s does not speak TLS: does gitlab.url have to begin with http://?", ErrUnavailable, c.base.Host)
	}
	var wrapped *url.Error // its text repeats the URL
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("%w: %s", ErrUnavailable, quote(err.Error(), secrets...))
}

// body reads an answer up to its limit, and remembers how reading ended: a JSON decoder
// can't tell a broken connection from JSON that stops in the middle.
type body struct {
	r           io.Reader
	left, limit int64
	err         error // of the connection, or that the limit is reached; nil for the end
}

func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if int64(len(p)) > b.left+1 { // one more than allowed shows that there is more
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		b.err = fmt.Errorf("%w: it is larger than %d MiB", ErrProtocol, max(1, b.limit>>20))
		return 0, b.err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = fmt.Errorf("%w: the answer was cut off: %s", ErrUnavailable, quote(err.Error()))
		return n, b.err
	}
	return n, err
}

// all reads the whole body.
func (b *body) all() ([]byte, error) {
	data, err := io.ReadAll(b)
	if err != nil {
		return nil, err
	}
	return data, nil
}
