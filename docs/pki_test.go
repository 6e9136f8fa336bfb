package docs_test

import (
	"crypto/x509"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
)

// Whoever copies the commands for openssl has files that Spillway takes.
func TestAuthorityOfThePageWorks(t *testing.T) {
	peertest.Program(t, "openssl", "the commands of the page were not tried")
	dir := t.TempDir()
	ran := 0
	for _, block := range blocks(read(t, "pki.md"), "sh") {
		if !strings.HasPrefix(block, "openssl") {
			continue
		}
		ran++
		cmd := exec.Command("sh", "-ec", block)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.Equal(t, 1, ran)
	files := tlsfiles.Files{Cert: filepath.Join(dir, "server.crt"), Key: filepath.Join(dir, "server.key"), CA: filepath.Join(dir, "ca.crt")}
	s, err := tlsfiles.Open(files, tlsfiles.Options{})
	require.NoError(t, err)
	m := s.Current()
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		for _, name := range []string{"router.spillway.internal", "127.0.0.1"} {
			_, err := m.Certificate.Leaf.Verify(x509.VerifyOptions{Roots: m.Authorities, DNSName: name, KeyUsages: []x509.ExtKeyUsage{use}})
			require.NoError(t, err)
		}
	}
}
