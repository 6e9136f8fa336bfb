package gcemig_test

import (
	"net/http"
	"strings"
)

// before does something else before each call of one kind is sent.
type before struct {
	on   string // a part of the path
	do   func()
	next http.RoundTripper
}

func (b *before) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/"+b.on) {
		b.do()
	}
	return b.next.RoundTrip(r)
}
