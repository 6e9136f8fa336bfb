package main

import (
	"debug/buildinfo"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"
)

func TestSBOMNamesEachProgram(t *testing.T) {
	folder, v := dist(t)
	for _, p := range packages {
		f, err := os.Open(one(t, folder, p.name+"_*_linux_"+runtime.GOARCH+".cdx.json"))
		require.NoError(t, err)
		var bom cdx.BOM
		require.NoError(t, cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom))
		require.NoError(t, f.Close())
		require.Regexp(t, regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`), bom.SerialNumber)
		require.Equal(t, v.debian, bom.Metadata.Component.Version)
		known := map[string]bool{}
		for _, c := range *bom.Components {
			require.False(t, known[c.BOMRef], "%s is there twice", c.BOMRef)
			known[c.BOMRef] = true
		}
		for _, prog := range p.programs {
			require.True(t, known["program:"+prog.name], prog.name)
		}
		require.Len(t, *bom.Dependencies, len(p.programs))
		for _, d := range *bom.Dependencies {
			for _, ref := range *d.Dependencies {
				require.True(t, known[ref], ref)
			}
		}
	}
}

// What a program says of itself is what is listed; this one is as good as any.
func TestModulesAreThoseThatWereLinked(t *testing.T) {
	own, err := os.Executable()
	require.NoError(t, err)
	info, err := buildinfo.ReadFile(own)
	require.NoError(t, err)
	all, err := modulesOf(info)
	require.NoError(t, err)
	require.Len(t, all, 1+len(info.Deps))
	require.Equal(t, "stdlib", all[0].Name)
	for i, m := range info.Deps {
		require.Equal(t, m.Path+" "+m.Version, all[1+i].Name+" "+all[1+i].Version)
		require.Len(t, (*all[1+i].Hashes)[0].Value, 64)
	}
}

func TestModuleWithoutChecksumIsRefused(t *testing.T) {
	_, err := modulesOf(&buildinfo.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{{Path: "example.com/local", Version: "v1.0.0"}}})
	require.ErrorContains(t, err, "example.com/local has no checksum")
}
