package main

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/sassoftware/go-rpmutils"
	"github.com/stretchr/testify/require"
)

// rpmConfig are the flags of a %config(noreplace)
// file, as rpm's headers name them (https://rpm-software-management.github.io/rpm/manual/tags.html).
const rpmConfig = 1<<0 | 1<<4

// rpmArch is how rpm names this machine's architecture.
var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]

func TestRPMHasWhatTheDebHas(t *testing.T) {
	folder, v := dist(t)
	for _, p := range packages {
		t.Run(p.name, func(t *testing.T) {
			f, err := os.Open(one(t, folder, p.name+"-*."+rpmArch+".rpm"))
			require.NoError(t, err)
			defer func() { require.NoError(t, f.Close()) }()
			rpm, err := rpmutils.ReadRpm(f)
			require.NoError(t, err)
			nevra, err := rpm.Header.GetNEVRA()
			require.NoError(t, err)
			require.Equal(t, []string{p.name, v.debian, rpmArch}, []string{nevra.Name, nevra.Version, nevra.Arch})
			requires, err := rpm.Header.GetStrings(rpmutils.REQUIRENAME)
			require.NoError(t, err)
			require.Contains(t, requires, "systemd")
			for _, script := range []int{rpmutils.POSTIN, rpmutils.PREUN, rpmutils.POSTUN} {
				text, err := rpm.Header.GetString(script)
				require.NoError(t, err)
				require.Contains(t, text, "#!/bin/sh")
				require.NotContains(t, text, "@")
			}
			files, err := rpm.Header.GetFiles()
			require.NoError(t, err)
			byName := map[string]rpmutils.FileInfo{}
			for _, file := range files {
				byName[file.Name()] = file
				require.Equal(t, "root root", file.UserName()+" "+file.GroupName(), file.Name())
			}
			for _, prog := range p.programs {
				require.Contains(t, byName, prog.dir+"/"+prog.name)
				require.Equal(t, 0o755, byName[prog.dir+"/"+prog.name].Mode()&0o777)
			}
			for _, c := range p.config {
				file := byName["/etc/"+p.unit+"/"+c.from]
				require.NotNil(t, file, c.from)
				require.Equal(t, rpmConfig, file.Flags()&rpmConfig)
				require.Equal(t, int(c.mode), file.Mode()&0o777)
			}
			require.Contains(t, byName, "/usr/lib/systemd/system/"+p.unit+".service")
		})
	}
}

// rpm's own opinion, where it is installed.
func TestRPMChecksItsPackages(t *testing.T) {
	rpm := installedProgram(t, "rpm", "its packages were read by another reader only")
	folder, _ := dist(t)
	for _, p := range packages {
		file := one(t, folder, p.name+"-*."+rpmArch+".rpm")
		out, err := exec.Command(rpm, "--dbpath", t.TempDir(), "--checksig", "--nosignature", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, output(t, rpm, "-qp", "--nosignature", "--scripts", "--list", file), "/usr/lib/systemd/system/"+p.unit+".service")
	}
}
