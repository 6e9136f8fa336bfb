package gitlab

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// Limits on the connections of a client that makes its own.
const (
	dialAndHeadersTimeout = 30 * time.Second
	idleConnsPerHost      = 32 // a router polls for many runner tokens at once
	maxHeaderBytes        = 64 << 10
	maxTokenBytes         = 1024
)

// Options are what a Client is made of.
type Options struct {
	URL string // of the GitLab, as config's gitlab.url: https://gitlab.example.com, a path allowed
	// HTTP makes the requests; nil makes one that trusts CAFile and the system's roots.
	HTTP   *http.Client
	CAFile string // PEM; only where HTTP is nil
	// Token gives the API token, anew for each call; nil where there is none. The
	// calls that need it are ErrUnauthorized then.
	Token func() (string, error)
	// PerMinute bounds the calls that use the API token [1/min]; 0 = no limit.
	PerMinute int
	// ProtectedRefs makes Jobs find out which pending jobs are protected. GitLab's lists
	// don't tell, so it costs up to two calls per project and protectionAge, and is
	// worth it only where some runner takes protected jobs only. Without it
	// Job.Protected is false.
	ProtectedRefs bool
	Now           func() time.Time // nil = time.Now
}

// Client talks to one GitLab. Its methods may be called from any goroutine.
type Client struct {
	base    *url.URL
	http    *http.Client
	token   func() (string, error)
	now     func() time.Time
	wait    func(done <-chan struct{}, d time.Duration) bool // false: done was first
	budget  *budget
	learns  bool                     // as Options.ProtectedRefs
	pages   int                      // of one list; MaxPages, less in tests
	noGraph [scopeKinds]atomic.Int64 // until when GraphQL is not tried [unix ns]
	groups  *cache[int64, []int64]
	rules   *cache[int64, protection]
}

// New makes a client. It does not call GitLab: see Check.
func New(o Options) (*Client, error) {
	base, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	if o.PerMinute < 0 {
		return nil, fmt.Errorf("gitlab: a budget of %d calls a minute: use 0 (no limit) or more", o.PerMinute)
	}
	client, err := httpClient(o)
	if err != nil {
		return nil, err
	}
	c := &Client{base: base, http: client, token: o.Token, now: o.Now, wait: sleep, learns: o.ProtectedRefs, pages: MaxPages}
	if c.now == nil {
		c.now = time.Now
	}
	c.budget = newBudget(o.PerMinute)
	c.groups = newCache[int64, []int64](maxCachedProjects, ancestorsAge)
	c.rules = newCache[int64, protection](maxCachedProjects, protectionAge)
	return c, nil
}

func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(raw, "/"))
	switch {
	case err != nil: // its text would repeat the URL, and with it a password in it
		return nil, errors.New("gitlab.url is not a URL: use one such as https://gitlab.example.com")
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "":
		return nil, errors.New("gitlab.url must begin with https:// or http:// and name a host")
	case u.User != nil:
		return nil, errors.New("gitlab.url must not hold a user or a password: use gitlab.api_token")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("gitlab.url must have no ? and no #")
	}
	if u.Path == "" {
		u.Path = "/" // else what is joined to it has none in front
	}
	return u, nil
}

func httpClient(o Options) (*http.Client, error) {
	var client http.Client
	if o.HTTP != nil {
		client = *o.HTTP // the caller's is not changed
	} else {
		transport, err := newTransport(o.CAFile)
		if err != nil {
			return nil, err
		}
		client.Transport = transport
	}
	// A redirect is a wrong gitlab.url. Following it would hand the token to whoever is
	// there, and turn a POST into a GET.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client, nil
}

func newTransport(caFile string) (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = 0 // a job request is held for as long as GitLab likes; each call has its own limit
	t.TLSHandshakeTimeout = dialAndHeadersTimeout
	t.MaxIdleConnsPerHost = idleConnsPerHost
	t.MaxResponseHeaderBytes = maxHeaderBytes
	if caFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("gitlab.ca_file: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // no system roots: those of the file are enough
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("gitlab.ca_file %s holds no certificate in PEM form", caFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return t, nil
}

// apiToken is the API token of now.
func (c *Client) apiToken() (string, error) {
	if c.token == nil {
		return "", fmt.Errorf("%w: none is set (gitlab.api_token)", ErrUnauthorized)
	}
	token, err := c.token()
	if err != nil {
		return "", fmt.Errorf("%w: it can't be read: %w", ErrUnauthorized, err)
	}
	return checkToken(token)
}

// checkToken refuses what can't be in a header, here and not in net/http, whose error
// might one day quote it.
func checkToken(token string) (string, error) {
	token = strings.TrimSpace(token)
	if token == "" || len(token) > maxTokenBytes || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%w: it must be 1 to %d printable ASCII characters", ErrUnauthorized, maxTokenBytes)
	}
	return token, nil
}

func sleep(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return false
	case <-timer.C:
		return true
	}
}
