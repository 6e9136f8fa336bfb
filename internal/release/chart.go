package main

import (
	"fmt"
	"regexp"
	"strconv"
)

var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

// chartFile is Chart.yaml with the release's version. The image's tag is the same.
func (r *release) chartFile(text []byte) ([]byte, error) {
	for _, line := range []*regexp.Regexp{chartVersion, appVersion} {
		if n := len(line.FindAll(text, -1)); n != 1 {
			return nil, fmt.Errorf("of the file Chart.yaml %d lines are like %s, want 1", n, line)
		}
	}
	text = chartVersion.ReplaceAll(text, []byte("version: "+r.version.semver))
	return appVersion.ReplaceAll(text, []byte("appVersion: "+strconv.Quote(r.version.semver))), nil
}
