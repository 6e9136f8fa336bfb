package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is a number that no distribution gives away.
const imageUser = "65532:65532"

// writeImage makes one image for all architectures: an index in an OCI image layout,
// https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md, as a tar file.
func (r *release) writeImage(all []built) error {
	p, err := r.imagePack()
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range all {
		image, err := r.archImage(p, b)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: b.arch}},
		})
	}
	folder := filepath.Join(r.work, "oci")
	at, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	// A registry's tag can't have a "+".
	tag := strings.ReplaceAll(r.version.semver, "+", "-")
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})); err != nil {
		return err
	}
	return r.packLayout(folder)
}

func (r *release) packLayout(folder string) error {
	names, err := filesBelow(folder)
	if err != nil {
		return err
	}
	var entries []entry
	for _, name := range names {
		entries = append(entries, entry{name: filepath.ToSlash(name), from: filepath.Join(folder, name), mode: 0o644})
	}
	f, err := os.Create(r.file("spillway-%s.oci.tar", r.version.semver))
	if err != nil {
		return err
	}
	if err := errors.Join(writeTar(f, entries, r.date), f.Close()); err != nil {
		return fmt.Errorf("pack the layout: %w", err)
	}
	return nil
}

// archImage is the image of one architecture: below what seldom changes, above the
// programs.
func (r *release) archImage(p pack, b built) (v1.Image, error) {
	below := []entry{
		{name: "etc/ssl/certs/ca-certificates.crt", data: authorities(), mode: 0o644},
		{name: "tmp/", mode: 0o1777}, // where plugins' sockets are
	}
	above := []entry{{name: strings.TrimPrefix(path.Join(docDir(p), "copyright"), "/"), from: filepath.Join(r.source, "LICENSE"), mode: 0o644}}
	for _, prog := range p.programs {
		above = append(above, entry{name: strings.TrimPrefix(path.Join(prog.dir, prog.name), "/"), from: b.programs[prog.name], mode: 0o755})
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	for _, entries := range [][]entry{below, above} {
		layer, err := r.layer(entries)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "make release"}})
		if err != nil {
			return nil, err
		}
	}
	main := p.programs[0]
	return r.configured(image, b.arch, path.Join(main.dir, main.name))
}

// configured adds to an image how it is run.
func (r *release) configured(image v1.Image, arch, program string) (v1.Image, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.date}
	config.Config = v1.Config{
		User: imageUser, Entrypoint: []string{program}, Cmd: []string{"serve", "--config", "/etc/spillway/spillway.yaml"},
		Env: []string{"PATH=/usr/bin"}, WorkingDir: "/tmp",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "Spillway control plane",
			"org.opencontainers.image.version":  r.version.semver,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

func (r *release) layer(entries []entry) (v1.Layer, error) {
	var content bytes.Buffer
	if err := writeTar(&content, entries, r.date); err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	return tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer))
}

// authorities are the public ones that Mozilla's users trust, of one known version
// and not of this machine. Those with a limit to their trust are left out: a file of
// certificates can't say it.
func authorities() []byte {
	var file bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			file.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return file.Bytes()
}
