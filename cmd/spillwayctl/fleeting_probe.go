package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/providers/fleeting/wire"
)

// profileVariable says where a probe that is started as a plugin writes to.
const profileVariable = "SPILLWAY_FLEETING_PROFILE"

// maxEnvironBytes bounds the environment of the process that started the probe
// [bytes]: the kernel's own limit for all of it is less on most machines.
const maxEnvironBytes = 4 << 20

func (a *app) fleetingProbeCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "probe", Short: "Be started by a runner as a plugin, and write down how",
		Long: `A fleeting plugin only starts when its host hands it a magic cookie, which is
published nowhere. A runner on your machine knows it: have it start this program
in the place of a plugin.

  1. cp "$(command -v spillwayctl)" /usr/local/bin/` + probeName + `
     Under this name the program is this command, without any argument.
  2. In config.toml of a runner that may be disturbed, set, for a moment,
     plugin = "` + probeName + `" in [runners.autoscaler], and start the runner.
  3. The runner says that the plugin did not start, and why: the probe always
     exits with 1. It names the file that it has written.
  4. Put everything back, and go on with spillwayctl fleeting inspect.

It compares its environment with that of the process that started it (Linux
only), and writes what go-plugin has added into a wire profile that only its owner
can read: the cookie, the protocol versions, and whether there was a client
certificate. No other variable's value is written or shown. Where more than one
could be the cookie, it writes their names: set handshake.cookie_key to one of
them in that file, and probe again.

The file is --profile, else $` + profileVariable + ` of the runner, else
spillway-fleeting-profile.yaml among the temporary files.`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error { return a.fleetingProbe(path) },
	}
	cmd.Flags().StringVar(&path, "profile", "", "file to write")
	return cmd
}

// fleetingProbe always fails: a host that started it shall not take it for a plugin.
func (a *app) fleetingProbe(path string) error {
	path, err := a.probePath(path)
	if err != nil {
		return failedf("the probe has no place to write to: %v", err)
	}
	parent, err := environmentOf(os.Getppid())
	if err != nil {
		return failedf("the probe can't see the environment of the process that started it: %v", err)
	}
	profile, key, err := profileToProbe(path)
	if err != nil {
		return failedf("the probe won't write to %s: %v", path, err)
	}
	h, learnt := wire.Probe(os.Environ(), parent, key)
	if learnt != nil && !errors.Is(learnt, wire.ErrAmbiguous) {
		return failedf("the probe has written nothing: %v", learnt)
	}
	probed := wire.NewProfile(h, a.now())
	if profile != nil {
		probed.Binding, probed.Provenance.InspectedAt = profile.Binding, profile.Provenance.InspectedAt
		probed.Provenance.Binary, probed.Provenance.BinarySHA256 = profile.Provenance.Binary, profile.Provenance.BinarySHA256
	}
	if err := probed.Save(path); err != nil {
		return failedf("the probe can't write %s: %v", path, err)
	}
	if learnt != nil {
		return failedf("the probe has written %s, and is not done: %v", path, learnt)
	}
	return failedf("this is no plugin but a probe, and it is done: it has written %s; now put the runner's own plugin back, and run `spillwayctl fleeting inspect BINARY --profile %s`", path, path)
}

func (a *app) probePath(path string) (string, error) {
	if path == "" {
		path = a.getenv(profileVariable)
	}
	if path == "" {
		path = filepath.Join(os.TempDir(), "spillway-fleeting-profile.yaml")
	}
	return filepath.Abs(path)
}

// environmentOf is the environment that a process was started with.
func environmentOf(pid int) ([]string, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("only Linux shows it")
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, errors.New("it belongs to another user: have them run the probe as the same one")
	case err != nil:
		return nil, err
	case len(data) > maxEnvironBytes:
		return nil, fmt.Errorf("it has more than %d bytes", maxEnvironBytes)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), nil
}

// profileToProbe is the profile that is there already, nil for none, and the cookie
// that a person chose in it. A file of somebody else's could name any variable as the
// cookie, so that its value is written.
func profileToProbe(path string) (profile *wire.Profile, key string, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 || !ok || int(owner.Uid) != os.Geteuid() {
		return nil, "", errors.New("there is something that is not a file which only this user can write")
	}
	profile, err = wire.Load(path)
	if err != nil {
		return nil, "", err
	}
	if profile.Handshake.CookieValue == "" {
		key = profile.Handshake.CookieKey
	}
	return profile, key, nil
}
