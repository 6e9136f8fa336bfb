package collect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"
)

const (
	// dialTimeout is how long a connection may take: nobody is there, or a firewall
	// swallows it.
	dialTimeout = 2 * time.Second
	// maxClipBytes bounds what is repeated of somebody else's words [bytes].
	maxClipBytes = 200
)

// directTransport makes connections without a proxy and without compression: what is
// asked is near, and a bound on what is read has to be one on what was sent.
func directTransport(caFile string, idle time.Duration) (*http.Transport, error) {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     idle,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
	}
	if caFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	t.TLSClientConfig.RootCAs = x509.NewCertPool()
	if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_file: %s has no certificate in PEM", caFile)
	}
	return t, nil
}

// withoutRedirects is a client that hands a redirect to its caller: following one would
// ask somebody else, and show them what was meant for the first.
func withoutRedirects(t http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// networkFault says why there was no whole answer. The sentence begins with its verb.
func networkFault(err error) (ScrapeReason, string) {
	var verification *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.As(err, &verification):
		return ScrapeUntrusted, "shows a certificate that isn't trusted (" + clip(verification.Err.Error()) + "): set ca_file"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return ScrapeTimeout, "doesn't answer in time"
	}
	var inURL *url.Error
	if errors.As(err, &inURL) {
		err = inURL.Err // the caller names the address
	}
	return ScrapeUnreachable, "doesn't answer: " + clip(err.Error())
}

// clip makes what somebody else said fit for a sentence.
func clip(s string) string {
	if len(s) > maxClipBytes {
		s = s[:maxClipBytes] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
