package providertest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// RunBinary checks the plugin at path, over the wire and in a process of its
// own; s.Provider is not used. env is all that the plugin sees ("NAME=value").
func RunBinary(t *testing.T, path string, s Subject, env ...string) {
	t.Helper()
	Run(t, func(t *testing.T) Subject {
		p, stop, err := Launch(path, env, os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		s.Provider = p
		return s
	})
}

// Launch starts the plugin at path and returns its provider, to be configured,
// and what ends it. What the plugin prints goes to stderr. It is for checks: a
// control plane launches with far more care.
func Launch(path string, env []string, stderr io.Writer) (p pluginsdk.Provider, stop func(), err error) {
	cmd := exec.Command(path)
	cmd.Env = env
	cfg := &plugin.ClientConfig{
		HandshakeConfig:  pluginsdk.Handshake(),
		VersionedPlugins: pluginsdk.Versions(nil),
		Cmd:              cmd,
		SkipHostEnv:      true,
		AutoMTLS:         true,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Stderr:           stderr,
		Logger:           hclog.NewNullLogger(),
	}
	c := plugin.NewClient(cfg)
	fail := func(err error) (pluginsdk.Provider, func(), error) {
		c.Kill()
		return nil, nil, fmt.Errorf("starting plugin %s: %w", path, err)
	}
	rpc, err := pluginsdk.Connect(c, cfg)
	if err != nil {
		return fail(err)
	}
	raw, err := rpc.Dispense(pluginsdk.PluginName)
	if err != nil {
		return fail(err)
	}
	provider, ok := raw.(pluginsdk.Provider)
	if !ok {
		return fail(fmt.Errorf("dispensed %T", raw))
	}
	return provider, c.Kill, nil
}
