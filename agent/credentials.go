package agent

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spillway-ci/spillway/internal/tlsfiles"
)

// maxTokenBytes bounds a token [bytes]; a longer one is some other file.
const maxTokenBytes = 512

// TokenFile returns a source for Options.Token that reads the file each time.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		content, err := readShort(path)
		if err != nil {
			return "", fmt.Errorf("read the runner token: %w", err)
		}
		return checkToken(string(content))
	}
}

// maxTokenFileBytes bounds its file [bytes], with blanks around it.
const maxTokenFileBytes = 2 * maxTokenBytes

// readShort reads a short file: what path names may also be a device, which has no end.
func readShort(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxTokenFileBytes+1))
	if err == nil && len(content) > maxTokenFileBytes {
		err = fmt.Errorf("%s has more than %d bytes: is it the right file?", path, maxTokenFileBytes)
	}
	return content, err
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

// LoadTLS makes the source of TLS for Options from PEM files. An empty caFile stands for
// the system's authorities. certFile and keyFile, both or neither, are this machine's own
// certificate. The files are looked at for each connection: what is replaced is taken up,
// and what is of no use leaves in use what was there before, which kept is told; it may
// be nil.
func LoadTLS(caFile, certFile, keyFile string, kept func(error)) (func() *tls.Config, error) {
	if (certFile == "") != (keyFile == "") {
		return nil, errors.New("a client certificate needs both its certificate and its key")
	}
	files, err := tlsfiles.Open(tlsfiles.Files{Cert: certFile, Key: keyFile, CA: caFile}, tlsfiles.Options{Kept: kept})
	if err != nil {
		return nil, fmt.Errorf("load the certificates: %w", err)
	}
	return func() *tls.Config { return files.Client("") }, nil
}
