package main

import (
	"regexp"
	"strings"
)

// version is one version, as each kind of package writes it.
type version struct {
	linked string // as given: what --version says
	semver string // Helm, OCI annotations, names of archives
	debian string // deb and rpm: "~" sorts before the end of the word, "+" after it
}

// described is what git describe says: a tag, and behind it how many commits later.
var described = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.]+))??(?:-(\d+)-g([0-9a-f]+))?(-dirty)?$`)

// notInVersions is what neither semantic versions nor packages take after a "+".
var notInVersions = regexp.MustCompile(`[^0-9A-Za-z.]+`)

// parseVersion reads a version. What is none, such as a commit, becomes one that is
// older than all others.
func parseVersion(text string) version {
	m := described.FindStringSubmatch(text)
	if m == nil {
		v := "0.0.0+" + strings.Trim(notInVersions.ReplaceAllString(text, "."), ".")
		return version{text, v, v}
	}
	var after []string
	if m[3] != "" {
		after = append(after, m[3], "g"+m[4])
	}
	if m[5] != "" {
		after = append(after, "dirty")
	}
	build := ""
	if len(after) > 0 {
		build = "+" + strings.Join(after, ".")
	}
	v := version{text, m[1] + build, m[1] + build}
	if m[2] != "" {
		v.semver = m[1] + "-" + m[2] + build
		v.debian = m[1] + "~" + m[2] + build
	}
	return v
}
