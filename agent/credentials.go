package agent

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// maxTokenBytes bounds a token [bytes]; a longer one is some other file.
const maxTokenBytes = 512

// TokenFile returns a source for Options.Token that reads the file each time.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read the runner token: %w", err)
		}
		return checkToken(string(content))
	}
}

// StaticToken returns a source for Options.Token that always gives token.
func StaticToken(token string) func() (string, error) {
	return func() (string, error) { return checkToken(token) }
}

// checkToken keeps what can't be a token off the wire. Its errors never hold it.
func checkToken(token string) (string, error) {
	token = strings.TrimSpace(token)
	switch {
	case token == "":
		return "", errors.New("the runner token is empty")
	case !shortText(token, maxTokenBytes):
		return "", fmt.Errorf("the runner token must be at most %d printable ASCII characters without blanks", maxTokenBytes)
	}
	return token, nil
}

// LoadTLS makes the TLS configuration for Options from PEM files. An empty caFile
// stands for the system's authorities. certFile and keyFile, both or neither, are
// this machine's own certificate; they are read at each connection, so that a
// renewed one is taken up.
func LoadTLS(caFile, certFile, keyFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificate authorities: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in %s", caFile)
		}
	}
	if (certFile == "") != (keyFile == "") {
		return nil, errors.New("a client certificate needs both its certificate and its key")
	}
	if certFile == "" {
		return config, nil
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("load the client certificate: %w", err)
		}
		return &pair, nil
	}
	if _, err := load(nil); err != nil {
		return nil, err
	}
	config.GetClientCertificate = load
	return config, nil
}
