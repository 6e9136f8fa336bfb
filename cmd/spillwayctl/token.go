package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxTokenBytes bounds a token [bytes]; a longer one is some other file.
const maxTokenBytes = 4 << 10

// tokenFile sends a token with each call. The file is read each time, so that a command
// that goes on for hours takes up a replaced one. On a loopback address it is sent
// without TLS too; checkFlags refuses that anywhere else.
type tokenFile struct{ path string }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t tokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := t.read()
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (tokenFile) RequireTransportSecurity() bool { return false }

// read returns the token. Its errors never hold it.
func (t tokenFile) read() (string, error) {
	f, err := os.Open(t.path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // read only: nothing can be lost
	text, err := io.ReadAll(io.LimitReader(f, maxTokenBytes+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(text) > maxTokenBytes || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s has no token: one line of at most %d printable ASCII characters without blanks", t.path, maxTokenBytes)
	}
	return token, nil
}
