package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM lists what a package's programs were built from, as the linker has
// written it into each of them.
func (r *release) writeSBOM(p pack, b built) (string, error) {
	bom := cdx.NewBOM()
	var programs []cdx.Component
	var dependencies []cdx.Dependency
	modules := map[string]cdx.Component{} // by purl
	for _, prog := range p.programs {
		path := b.programs[prog.name]
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", prog.name, err)
		}
		sum, err := sumOf(path)
		if err != nil {
			return "", err
		}
		programs = append(programs, cdx.Component{
			BOMRef: "program:" + prog.name, Type: cdx.ComponentTypeApplication, Name: prog.name, Version: r.version.linked,
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}},
		})
		uses, err := modulesOf(info)
		if err != nil {
			return "", fmt.Errorf("%s: %w", prog.name, err)
		}
		var refs []string
		for _, c := range uses {
			modules[c.PackageURL] = c
			refs = append(refs, c.PackageURL)
		}
		dependencies = append(dependencies, cdx.Dependency{Ref: "program:" + prog.name, Dependencies: &refs})
	}
	components := slices.Concat(programs, slices.SortedFunc(maps.Values(modules), func(a, b cdx.Component) int { return cmp.Compare(a.PackageURL, b.PackageURL) }))
	bom.Components, bom.Dependencies = &components, &dependencies
	bom.SerialNumber = serial(p.name, b.arch, r.version.linked, programs)
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.date.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: "package:" + p.name, Type: cdx.ComponentTypeApplication, Name: p.name, Version: r.version.debian,
			Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		},
		Properties: &[]cdx.Property{{Name: "platform", Value: "linux/" + b.arch}},
	}
	path := r.file("%s_%s_linux_%s.cdx.json", p.name, r.version.semver, b.arch)
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	err = cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).Encode(bom)
	return path, errors.Join(err, f.Close())
}

// modulesOf are a program's modules and the standard library.
func modulesOf(info *buildinfo.BuildInfo) ([]cdx.Component, error) {
	std := strings.TrimPrefix(info.GoVersion, "go")
	all := []cdx.Component{library("stdlib", std)}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := library(m.Path, m.Version)
		if err := addSum(&c, m); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func library(name, version string) cdx.Component {
	purl := "pkg:golang/" + name + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: purl}
}

// addSum adds what go.sum says of a module: a SHA-256 over the list of its files.
func addSum(c *cdx.Component, m *debug.Module) error {
	text, ok := strings.CutPrefix(m.Sum, "h1:")
	if !ok {
		return fmt.Errorf("module %s has no checksum: it is not from a release of its own", m.Path)
	}
	sum, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return fmt.Errorf("checksum of module %s: %w", m.Path, err)
	}
	c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	return nil
}

// serial is a list's own number: another one if anything in the programs is. It has
// the form of a UUID of version 8, whose content is its maker's.
func serial(name, arch, version string, programs []cdx.Component) string {
	h := sha256.New()
	fmt.Fprintln(h, name, arch, version)
	for _, p := range programs {
		fmt.Fprintln(h, p.Name, (*p.Hashes)[0].Value)
	}
	sum := h.Sum(nil)
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
