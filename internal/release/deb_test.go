package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// system is an empty one in a folder, with a packager.
type system struct {
	t    *testing.T
	root string
}

func newSystem(t *testing.T) system {
	t.Helper()
	for _, name := range []string{"dpkg", "systemd-sysusers", "systemd-tmpfiles", "systemctl"} {
		installedProgram(t, name, "packages were not installed and removed")
	}
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: not root: packages were not installed and removed")
	}
	s := system{t, t.TempDir()}
	for _, dir := range []string{"info", "updates", "triggers"} {
		require.NoError(t, os.MkdirAll(filepath.Join(s.root, "var/lib/dpkg", dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(s.root, "var/lib/dpkg/status"), nil, 0o644))
	return s
}

// dpkg runs the packager. The packages' scripts run outside of the folder, and know it.
func (s system) dpkg(args ...string) string {
	s.t.Helper()
	return output(s.t, "dpkg", append([]string{"--root=" + s.root, "--log=/dev/null", "--force-depends", "--force-script-chrootless"}, args...)...)
}

func (s system) path(name string) string { return filepath.Join(s.root, name) }

// user is the number of a user of the system, which must be there.
func (s system) user(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(s.path("etc/passwd"))
	require.NoError(s.t, err)
	m := regexp.MustCompile(`(?m)^` + name + `:[^:]*:(\d+):`).FindSubmatch(text)
	require.NotNil(s.t, m, "%s", text)
	return string(m[1])
}

// requireOwned holds a file to its mode, and to the numbers of its user and group.
func (s system) requireOwned(name string, mode fs.FileMode, user, group string) {
	s.t.Helper()
	info, err := os.Stat(s.path(name))
	require.NoError(s.t, err)
	require.Equal(s.t, mode, info.Mode().Perm(), name)
	stat, ok := info.Sys().(*syscall.Stat_t)
	require.True(s.t, ok)
	require.Equal(s.t, user+":"+group, strings.Join([]string{uintText(stat.Uid), uintText(stat.Gid)}, ":"), name)
}

// left are the files that neither the packager nor the list of users accounts for.
func (s system) left() (names []string) {
	s.t.Helper()
	all, err := filesBelow(s.root)
	require.NoError(s.t, err)
	for _, name := range all {
		if !strings.HasPrefix(name, "var/lib/dpkg/") && !regexp.MustCompile(`^etc/(passwd|group|shadow|gshadow)-?$|^etc/\.pwd\.lock$`).MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

func TestDebIsInstalledRemovedAndPurged(t *testing.T) {
	folder, v := dist(t)
	for _, p := range packages {
		t.Run(p.name, func(t *testing.T) {
			s := newSystem(t)
			file := one(t, folder, p.name+"_*_"+runtime.GOARCH+".deb")
			s.dpkg("-i", file)
			user := s.user(p.unit)
			s.requireOwned("var/lib/"+p.unit, 0o750, user, user)
			s.requireOwned("etc/"+p.unit+"/tls", 0o750, "0", user)
			for _, c := range p.config {
				s.requireOwned(filepath.Join("etc", p.unit, c.from), fs.FileMode(c.mode), "0", "0")
			}
			require.Contains(t, output(t, s.path("usr/bin/"+p.programs[0].name), "--version"), v.linked)
			requireUnitIsSound(t, s, p)

			s.changeConfig(p)
			output(t, "systemctl", "--root="+s.root, "enable", p.unit+".service")
			require.NoError(t, os.WriteFile(s.path("var/lib/"+p.unit+"/state"), nil, 0o600))
			s.dpkg("-i", file) // as an upgrade does
			s.requireChanged(p)
			require.FileExists(t, s.path("etc/systemd/system/multi-user.target.wants/"+p.unit+".service"), "an upgrade has disabled the service")

			s.dpkg("--remove", p.name)
			s.requireChanged(p)
			require.NoFileExists(t, s.path("usr/bin/"+p.programs[0].name))
			require.FileExists(t, s.path("var/lib/"+p.unit+"/state"))
			_, err := os.Lstat(s.path("etc/systemd/system/multi-user.target.wants/" + p.unit + ".service"))
			require.ErrorIs(t, err, fs.ErrNotExist, "a removed service is still enabled")

			s.dpkg("--purge", p.name)
			require.Empty(t, s.left())
			require.NoDirExists(t, s.path("etc/"+p.unit))
			require.NoDirExists(t, s.path("var/lib/"+p.unit))
			s.user(p.unit) // keeps its number
		})
	}
}

func (s system) changeConfig(p pack) {
	s.t.Helper()
	f, err := os.OpenFile(s.path(filepath.Join("etc", p.unit, p.config[0].from)), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(s.t, err)
	_, err = f.WriteString("# changed\n")
	require.NoError(s.t, err)
	require.NoError(s.t, f.Close())
}

func (s system) requireChanged(p pack) {
	s.t.Helper()
	text, err := os.ReadFile(s.path(filepath.Join("etc", p.unit, p.config[0].from)))
	require.NoError(s.t, err)
	require.True(s.t, strings.HasSuffix(string(text), "# changed\n"), "the owner's configuration is gone")
}

// Both at once share no file, and one goes without the other.
func TestBothDebsTogether(t *testing.T) {
	s := newSystem(t)
	folder, _ := dist(t)
	for _, p := range packages {
		s.dpkg("-i", one(t, folder, p.name+"_*_"+runtime.GOARCH+".deb"))
	}
	s.dpkg("--purge", packages[1].name)
	require.FileExists(t, s.path("usr/bin/controlplane"))
	require.FileExists(t, s.path("etc/spillway/spillway.yaml"))
	s.dpkg("--purge", packages[0].name)
	require.Empty(t, s.left())
}

func TestScriptsAreShell(t *testing.T) {
	for _, p := range packages {
		for _, name := range []string{"postinst", "prerm", "postrm"} {
			text, err := os.ReadFile(filepath.Join(top, "deploy/scripts", name))
			require.NoError(t, err)
			filled := string(fillIn(text, p))
			require.NotContains(t, filled, "@")
			check := exec.Command("sh", "-n")
			check.Stdin = strings.NewReader(filled)
			out, err := check.CombinedOutput()
			require.NoError(t, err, "%s of %s: %s", name, p.name, out)
		}
	}
}
