package notices

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	// maxBodyBytes bounds an answer [bytes]: a notice is a line.
	maxBodyBytes = 4 << 10
	// maxHeaderBytes bounds the headers of an answer [bytes].
	maxHeaderBytes = 16 << 10
)

// errAbsent: there is no such item, which for a notice means that there is none.
var errAbsent = fmt.Errorf("%w: not found", ErrUnanswered)

// errToken: the token is not valid (any more).
var errToken = fmt.Errorf("%w: unauthorized", ErrUnanswered)

// newClient returns a client that talks to the given address and to nobody else: no
// proxy from the environment, and no redirect is followed.
func newClient() *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: askWithin}).DialContext,
			MaxResponseHeaderBytes: maxHeaderBytes,
			MaxIdleConns:           4,
			IdleConnTimeout:        time.Minute,
			DisableCompression:     true,
		},
	}
}

// answer is what a service said.
type answer struct {
	body   string
	header http.Header
}

// ask sends one request. Its errors name the path and never a header: a token is one.
func ask(ctx context.Context, client *http.Client, method, url string, header http.Header, within time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBodyBytes+1))
	switch {
	case err != nil:
		return answer{}, fmt.Errorf("%w: %s: %w", ErrUnanswered, req.URL.Path, err)
	case resp.StatusCode == http.StatusNotFound:
		return answer{header: resp.Header}, errAbsent
	case resp.StatusCode == http.StatusUnauthorized:
		return answer{}, errToken
	case resp.StatusCode != http.StatusOK:
		return answer{}, fmt.Errorf("%w: %s: status %d", ErrUnanswered, req.URL.Path, resp.StatusCode)
	case len(body) > maxBodyBytes:
		return answer{}, fmt.Errorf("%w: %s: more than %d bytes", ErrUnanswered, req.URL.Path, maxBodyBytes)
	}
	return answer{strings.TrimSpace(string(body)), resp.Header}, nil
}

// checkInstanceID keeps what can't be an id from becoming ours.
func checkInstanceID(id string) (string, error) {
	if !shortText(id, maxInstanceBytes) {
		return "", fmt.Errorf("%w: what it says is no instance id", ErrUnanswered)
	}
	return id, nil
}

// shortText reports whether s is 1 to limit bytes of printable ASCII without blanks.
func shortText(s string, limit int) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= limit
}

// unless returns err, or nil if it is what was expected.
func unless(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
