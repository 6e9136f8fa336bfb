package fleeting_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/program"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fleeting"
	"github.com/spillway-ci/spillway/providers/fleeting/child"
	"github.com/spillway-ci/spillway/providers/fleeting/wire"
)

const (
	within = time.Minute // of what happens at once on an idle machine
	poll   = 5 * time.Millisecond
	group  = "oaks"
)

// built are the programs, made once for all tests.
var built struct{ stand, plugin string }

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "fleeting-test-")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		built.stand, built.plugin = filepath.Join(dir, "fleeting-plugin-stand"), filepath.Join(dir, "spillway-provider-fleeting")
		for path, pkg := range map[string]string{built.stand: "internal/fleetingstand", built.plugin: "cmd/plugins/fleeting"} {
			out, err := exec.Command("go", "build", "-o", path, "github.com/spillway-ci/spillway/"+pkg).CombinedOutput()
			if err != nil {
				fmt.Fprintln(os.Stderr, string(out))
				return 1
			}
		}
		return m.Run()
	}())
}

// handshake is what the stand-in wants.
func handshake(mtls bool) wire.Handshake {
	return wire.Handshake{CookieKey: "ORCHARD_GATE", CookieValue: "open-sesame", ProtocolVersions: []int{4}, AutoMTLS: mtls}
}

// describe asks a stand-in of a shape for its descriptors.
func describe(t *testing.T, shape string, mtls bool) (*wire.Descriptors, *program.Image) {
	t.Helper()
	img, err := program.Open(built.stand, "", "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, img.Close()) })
	h := handshake(mtls)
	c, err := child.Start(t.Context(), img, child.Spec{
		CookieKey: h.CookieKey, CookieValue: h.CookieValue, ProtocolVersions: h.ProtocolVersions, AutoMTLS: mtls, Env: []string{"FLEETINGSTAND=" + shape},
	})
	require.NoError(t, err)
	defer c.Kill()
	d, err := wire.Read(t.Context(), c.Conn())
	require.NoError(t, err)
	return d, img
}

// profile makes the wire profile of a shape.
func profile(t *testing.T, shape string, mtls bool, chosen wire.Choices) string {
	t.Helper()
	d, img := describe(t, shape, mtls)
	proposal, err := wire.Propose(d, chosen)
	require.NoError(t, err)
	p := wire.NewProfile(handshake(mtls), time.Now())
	p.Binding = &proposal.Binding
	p.Provenance.BinarySHA256 = img.Sum
	path := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, p.Save(path))
	return path
}

// cloud is the stand-in's, as a test sees it.
type cloud struct {
	Trees   []tree `json:"trees"`
	Planted int    `json:"planted"`
	Calls   int    `json:"calls"`
	Inits   int    `json:"inits"`
	Hangs   int    `json:"hangs"`
	Faults  faults `json:"faults"`
}

type tree struct {
	ID    string `json:"id"`
	Phase string `json:"phase"`
	Lag   int    `json:"lag"`
}

type faults struct {
	CrashIn   string `json:"crash_in,omitempty"`
	CrashLate bool   `json:"crash_late,omitempty"`
	HangIn    string `json:"hang_in,omitempty"`
	FailIn    string `json:"fail_in,omitempty"`
	FailWith  string `json:"fail_with,omitempty"`
	Lag       int    `json:"lag,omitempty"`
	TakeFewer int    `json:"take_fewer,omitempty"`
	FellOne   bool   `json:"fell_one,omitempty"`
	Stuck     bool   `json:"stuck,omitempty"`
	Sick      string `json:"sick,omitempty"`
}

// stand is one stand-in and its cloud.
type stand struct {
	t     *testing.T
	shape string
	path  string // of the cloud
	conf  map[string]any
}

func newStand(t *testing.T, shape string) *stand {
	t.Helper()
	return newStandWith(t, shape, true, nil)
}

func newStandWith(t *testing.T, shape string, mtls bool, chosen wire.Choices) *stand {
	t.Helper()
	s := &stand{t: t, shape: shape, path: filepath.Join(t.TempDir(), "cloud.json")}
	s.write(cloud{})
	s.conf = map[string]any{
		"binary": built.stand, "profile": profile(t, shape, mtls, chosen), "groups": []string{group}, "max": 6,
		"plugin_config": map[string]any{"cloud": s.path, "max": 9}, "env": []string{"FLEETINGSTAND"},
		"update_interval": "20ms", "changing_interval": "10ms",
	}
	return s
}

func (s *stand) config() []byte {
	data, err := json.Marshal(s.conf)
	require.NoError(s.t, err)
	return data
}

func (s *stand) read() (c cloud) {
	s.t.Helper()
	data, err := os.ReadFile(s.path)
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(data, &c))
	return c
}

func (s *stand) write(c cloud) {
	s.t.Helper()
	data, err := json.Marshal(c)
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(s.path+".test", data, 0o600))
	require.NoError(s.t, os.Rename(s.path+".test", s.path))
}

// change meddles with the cloud. No call may be in flight.
func (s *stand) change(f func(c *cloud)) {
	s.t.Helper()
	c := s.read()
	f(&c)
	s.write(c)
}

// provider is a configured provider in this process, with the stand-in as its child.
func (s *stand) provider() *fleeting.Provider {
	s.t.Helper()
	s.t.Setenv("FLEETINGSTAND", s.shape)
	p := fleeting.New()
	require.NoError(s.t, p.Configure(s.t.Context(), s.config()))
	s.t.Cleanup(func() { require.NoError(s.t, p.Close(context.Background())) })
	return p
}

func status(t *testing.T, p pluginsdk.Provider) pluginsdk.GroupStatus {
	t.Helper()
	all, err := p.Status(t.Context(), []string{group})
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

func set(t *testing.T, p pluginsdk.Provider, target, expected int) (int, error) {
	t.Helper()
	return p.SetDesired(t.Context(), pluginsdk.SetDesired{Group: group, Target: target, Expected: expected})
}

// awaitRunning waits until exactly n instances are listed, all running.
func awaitRunning(t *testing.T, p pluginsdk.Provider, n int) (ids []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		list, err := p.ListInstances(t.Context(), group)
		ids = nil
		for _, in := range list {
			if in.State == pluginsdk.StateRunning {
				ids = append(ids, in.ID)
			}
		}
		return err == nil && len(list) == n && len(ids) == n
	}, within, poll)
	return ids
}

// children are the processes of the stand-in that this process or pid started.
func children(t *testing.T, parent int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range stats {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // gone
		}
		// pid (name) state ppid …: the name may hold anything
		fields := strings.Fields(string(line[strings.LastIndexByte(string(line), ')')+1:]))
		if fields[0] == "Z" || fields[1] != strconv.Itoa(parent) {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if strings.Contains(string(args), "fleeting-plugin-stand") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}
