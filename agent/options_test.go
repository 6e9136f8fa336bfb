package agent_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent"
)

func TestInvalidOptions(t *testing.T) {
	for name, change := range map[string]func(*agent.Options){
		"no router":                func(o *agent.Options) { o.Router = "" },
		"router without port":      func(o *agent.Options) { o.Router = "127.0.0.1" },
		"plaintext beyond machine": func(o *agent.Options) { o.Router = "192.0.2.1:1" },
		"plaintext to a name":      func(o *agent.Options) { o.Router = "router.example:1" },
		"a label with a blank":     func(o *agent.Options) { o.Labels = map[string]string{"zone": "here or there"} },
		"a label without a name":   func(o *agent.Options) { o.Labels = map[string]string{"": "x"} },
		"a long label": func(o *agent.Options) {
			o.Labels = map[string]string{"zone": strings.Repeat("x", agent.MaxLabelValueBytes+1)}
		},
		"too many labels": func(o *agent.Options) {
			o.Labels = map[string]string{}
			for i := range agent.MaxLabels + 1 {
				o.Labels[strconv.Itoa(i)] = "x"
			}
		},
		"no token":                 func(o *agent.Options) { o.Token = nil },
		"capacity too small":       func(o *agent.Options) { o.Capacity = 0 },
		"capacity too large":       func(o *agent.Options) { o.Capacity = 1001 },
		"machine id with blank":    func(o *agent.Options) { o.MachineID = "a b" },
		"machine id too long":      func(o *agent.Options) { o.MachineID = strings.Repeat("m", agent.MaxIDBytes+1) },
		"instance id with newline": func(o *agent.Options) { o.InstanceID = "a\nb" },
		"version too long":         func(o *agent.Options) { o.Version = strings.Repeat("1", agent.MaxVersionBytes+1) },
		"no such work directory":   func(o *agent.Options) { o.WorkDir = filepath.Join(o.WorkDir, "absent") },
		"negative drain timeout":   func(o *agent.Options) { o.DrainTimeout = -1 },
		"negative grace":           func(o *agent.Options) { o.StopGrace = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			o := agent.Options{Router: "127.0.0.1:1", Token: agent.StaticToken("t"), Capacity: 1, WorkDir: t.TempDir()}
			change(&o)
			require.ErrorIs(t, agent.Run(t.Context(), o), agent.ErrOptions)
		})
	}
	err := agent.Run(t.Context(), agent.Options{Router: "nowhere"})
	require.ErrorContains(t, err, "router")
	require.ErrorContains(t, err, "token")
	require.ErrorContains(t, err, "capacity", "all mistakes at once")
}

// Plaintext is a question of the address alone: with TLS any will do.
func TestTLSReachesBeyondTheMachine(t *testing.T) {
	r := startRouter(t)
	m := startAgent(t, r, func(o *agent.Options) {
		o.Router = "router.invalid:1"
		o.TLS = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS13} }
	})
	m.cut(errCut)
	require.ErrorIs(t, m.requireEnd(t), errCut)
}

func TestTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	for name, c := range map[string]struct {
		content, want string
	}{
		"trimmed":      {" abc\n", "abc"},
		"empty":        {"\n", ""},
		"two lines":    {"abc\ndef\n", ""},
		"just fits":    {strings.Repeat("x", 512), strings.Repeat("x", 512)},
		"one too long": {strings.Repeat("x", 513), ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, []byte(c.content), 0o600))
			got, err := agent.TokenFile(file)()
			require.Equal(t, c.want, got)
			require.Equal(t, c.want == "", err != nil, "%v", err)
			if err != nil {
				require.NotContains(t, err.Error(), "abc")
			}
		})
	}
	_, err := agent.TokenFile(file + ".absent")()
	require.ErrorIs(t, err, os.ErrNotExist)
}
