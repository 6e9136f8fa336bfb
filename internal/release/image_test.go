package main

import (
	"archive/tar"
	"crypto/x509"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

// extract unpacks a tar file, whose names lie within it.
func extract(t *testing.T, from io.Reader, to string) {
	t.Helper()
	for in := tar.NewReader(from); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		require.True(t, filepath.IsLocal(h.Name), h.Name)
		path := filepath.Join(to, h.Name)
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		require.Zero(t, h.Uid+h.Gid, h.Name)
		data, err := io.ReadAll(in)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755), "%s comes before its folder", h.Name)
		require.NoError(t, os.WriteFile(path, data, os.FileMode(h.Mode)))
	}
}

// readLayout is the index of all architectures in the release's image.
func readLayout(t *testing.T, folder string) v1.ImageIndex {
	t.Helper()
	f, err := os.Open(one(t, folder, "*.oci.tar"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	at := t.TempDir()
	extract(t, f, at)
	require.FileExists(t, filepath.Join(at, "oci-layout"))
	outer, err := layout.ImageIndexFromPath(at)
	require.NoError(t, err)
	require.NoError(t, validate.Index(outer), "digests and sizes")
	manifest, err := outer.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	require.NotContains(t, manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"], "+")
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return index
}

func TestImageRunsTheControlPlane(t *testing.T) {
	folder, v := dist(t)
	index := readLayout(t, folder)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		require.NoError(t, err)
		file, err := image.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, m.Platform.Architecture, file.Architecture)
		require.Equal(t, imageUser, file.Config.User)
		require.Equal(t, []string{"/usr/bin/controlplane"}, file.Config.Entrypoint)
		if file.Architecture != runtime.GOARCH {
			continue
		}
		root := t.TempDir()
		files := mutate.Extract(image)
		extract(t, files, root)
		require.NoError(t, files.Close())
		require.Contains(t, output(t, filepath.Join(root, "usr/bin/controlplane"), "--version"), v.linked)
		require.Contains(t, output(t, filepath.Join(root, "usr/bin/spillwayctl"), "--version"), v.linked)
		for _, prog := range packages[0].programs {
			require.FileExists(t, filepath.Join(root, prog.dir, prog.name))
		}
		requireStatic(t, filepath.Join(root, "usr/bin/controlplane"))
		return
	}
	t.Fatalf("no image is for %s", runtime.GOARCH)
}

// An image without a C library can only run programs that ask for no interpreter.
func requireStatic(t *testing.T, program string) {
	t.Helper()
	file, err := elf.Open(program)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	for _, p := range file.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "%s is linked with libraries of the machine", program)
	}
}

func TestAuthoritiesAreCertificates(t *testing.T) {
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(authorities()))
	require.Greater(t, strings.Count(string(authorities()), "BEGIN CERTIFICATE"), 50)
}
