package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionsAsEachKindOfPackageWritesThem(t *testing.T) {
	for text, want := range map[string][2]string{
		"v1.2.3":                       {"1.2.3", "1.2.3"},
		"1.2.3":                        {"1.2.3", "1.2.3"},
		"v1.2.3-rc.1":                  {"1.2.3-rc.1", "1.2.3~rc.1"},
		"v1.2.3-4-gabc1234":            {"1.2.3+4.gabc1234", "1.2.3+4.gabc1234"},
		"v1.2.3-rc.1-4-gabc1234-dirty": {"1.2.3-rc.1+4.gabc1234.dirty", "1.2.3~rc.1+4.gabc1234.dirty"},
		"v1.2.3-dirty":                 {"1.2.3+dirty", "1.2.3+dirty"},
		"abc1234-dirty":                {"0.0.0+abc1234.dirty", "0.0.0+abc1234.dirty"},
		"dev":                          {"0.0.0+dev", "0.0.0+dev"},
	} {
		v := parseVersion(text)
		require.Equal(t, version{text, want[0], want[1]}, v, text)
	}
}

// Whoever upgrades along this list never goes back.
func TestVersionsSort(t *testing.T) {
	dpkg := installedProgram(t, "dpkg", "the order of versions was not held to dpkg's")
	order := []string{"dev", "v1.2.3-rc.1", "v1.2.3-rc.1-4-gabc1234", "v1.2.3-rc.2", "v1.2.3", "v1.2.3-4-gabc1234", "v1.2.4"}
	for i := range order[1:] {
		older, newer := parseVersion(order[i]).debian, parseVersion(order[i+1]).debian
		require.NoError(t, exec.Command(dpkg, "--compare-versions", older, "lt", newer).Run(), "%s and %s", older, newer)
	}
}
