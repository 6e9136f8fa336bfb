package wire

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const whole = `
version: 1
handshake:
  cookie_key: GATE
  cookie_value: open
  protocol_versions: [0, 3]
  auto_mtls: true
binding:
  service: p.Group
  methods: {Init: Init, Update: Update}
  fields: {Init.config: terms.json}
  states: {STATE_UP: running}
provenance:
  probed_at: 2026-01-02T12:00:00Z
  binary: fleeting-plugin-x
  binary_sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
`

func TestProfileRoundTrip(t *testing.T) {
	p, err := Parse([]byte(whole))
	require.NoError(t, err)
	require.Equal(t, Handshake{CookieKey: "GATE", CookieValue: "open", ProtocolVersions: []int{0, 3}, AutoMTLS: true}, p.Handshake)
	require.Equal(t, Running, p.Binding.States["STATE_UP"])
	require.NoError(t, p.Usable())

	path := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, p.Save(path))
	again, err := Load(path)
	require.NoError(t, err)
	require.Equal(t, p, again)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	names, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, names, 1, "nothing is left beside it")
}

// Every mistake is named at once, and no value of the cookie is.
func TestProfileMistakes(t *testing.T) {
	_, err := Parse([]byte(`
version: 2
handshake: {cookie_key: PLUGIN_CLIENT_CERT, cookie_value: "hush\0hush", protocol_versions: [-1, 70000], mtls: true}
binding:
  service: 1
  methods: {Init: Init, Start: x, Update: "a b"}
  fields: {Init.conf: x, Init.config: ".."}
  states: {UP: alive}
provenance: {binary_sha256: abc}
more: 1
`))
	require.ErrorIs(t, err, ErrProfile)
	for _, want := range []string{
		"version: 2, this program knows 1", "handshake.cookie_key", "handshake.cookie_value", "protocol_versions[0]: -1", "protocol_versions[1]: 70000", "handshake.mtls: there is no such setting",
		"binding.service: must be a string", "binding.methods.Start: there is no such method", "binding.methods.Update: it can't be a name", "binding.fields.Init.conf: there is no such field",
		"binding.fields.Init.config: it can't be a name", "binding.states.UP: use creating", "provenance.binary_sha256", "more: there is no such setting",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "hush")
}

func TestProfileThatIsNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "not YAML",
		"[]":                                     "must be an object",
		"version: 1\n---\nversion: 1":            "more than one document",
		"version: 1\nversion: 1":                 "already defined",
		"1: 2":                                   "keys must be strings",
		"version: 1":                             "handshake: missing",
		strings.Repeat("#", MaxProfileBytes+1):   "more than 65536 bytes",
		"version: 1\nhandshake: *x":              "not YAML",
		"version: 1\nhandshake: {binding: null}": "binding",
	} {
		_, err := Parse([]byte(text))
		require.ErrorIs(t, err, ErrProfile)
		require.ErrorContains(t, err, want)
	}
	_, err := Parse([]byte(whole + strings.Repeat("#", MaxProfileBytes-len(whole))))
	require.NoError(t, err, "the limit itself is allowed")
	_, err = Load(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, ErrProfile)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestProfileThatIsNotDone(t *testing.T) {
	p := NewProfile(Handshake{ProtocolVersions: []int{1}, Candidates: []string{"A", "B"}}, time.Now())
	require.ErrorContains(t, p.Startable(), "handshake.cookie_key and handshake.cookie_value are not known")
	require.ErrorContains(t, p.Startable(), "the cookie may be A or B")
	p.Handshake = Handshake{CookieKey: "A", CookieValue: "x", ProtocolVersions: []int{1}}
	require.NoError(t, p.Startable())
	require.ErrorContains(t, p.Usable(), "there is no binding")
}

func TestProbe(t *testing.T) {
	parent := []string{"HOME=/root", "TOKEN=secret", "LANG=C"}
	plugin := append(parent[:3:3], "GATE=open", "PLUGIN_MIN_PORT=0", "PLUGIN_MAX_PORT=0", "PLUGIN_PROTOCOL_VERSIONS=3,0")
	h, err := Probe(plugin, parent, "")
	require.NoError(t, err)
	require.Equal(t, Handshake{CookieKey: "GATE", CookieValue: "open", ProtocolVersions: []int{0, 3}}, h)

	mtls := append(plugin[:len(plugin):len(plugin)], "PLUGIN_CLIENT_CERT=-----BEGIN", "PLUGIN_UNIX_SOCKET_DIR=/tmp/x")
	h, err = Probe(mtls, parent, "")
	require.NoError(t, err)
	require.True(t, h.AutoMTLS)

	// The runner has set something itself since it was started: a person decides.
	two := append(mtls[:len(mtls):len(mtls)], "LANG=de", "PASSWORD=hush")
	h, err = Probe(two, parent, "")
	require.ErrorIs(t, err, ErrAmbiguous)
	require.Equal(t, []string{"GATE", "LANG", "PASSWORD"}, h.Candidates)
	require.Empty(t, h.CookieValue)
	require.NotContains(t, err.Error(), "hush")
	h, err = Probe(two, parent, "GATE")
	require.NoError(t, err)
	require.Equal(t, "open", h.CookieValue)
	require.Empty(t, h.Candidates)
	_, err = Probe(two, parent, "TOKEN")
	require.ErrorIs(t, err, ErrNotProbed, "what was there before is no cookie, whoever says so")

	for name, own := range map[string][]string{
		"started by hand":  append(parent[:3:3], "A=b"),
		"no versions":      append(parent[:3:3], "GATE=open", "PLUGIN_PROTOCOL_VERSIONS=x"),
		"nothing but that": append(parent[:3:3], "PLUGIN_PROTOCOL_VERSIONS=1"),
	} {
		_, err := Probe(own, parent, "")
		require.ErrorIs(t, err, ErrNotProbed, name)
	}
}

// Whatever is in the environments, no value but the cookie's gets out.
func TestProbeKeepsSecrets(t *testing.T) {
	entry := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"A", "B", "C", "PLUGIN_CLIENT_CERT", "PLUGIN_PROTOCOL_VERSIONS"}).Draw(t, "name") + "=" + rapid.SampledFrom([]string{"1", "secret-1", "secret-2"}).Draw(t, "value")
	})
	rapid.Check(t, func(t *rapid.T) {
		own, parent := rapid.SliceOf(entry).Draw(t, "own"), rapid.SliceOf(entry).Draw(t, "parent")
		h, err := Probe(own, parent, rapid.SampledFrom([]string{"", "A"}).Draw(t, "key"))
		if err != nil {
			require.NotContains(t, err.Error(), "secret")
			require.Empty(t, h.CookieValue)
			require.True(t, errors.Is(err, ErrAmbiguous) || errors.Is(err, ErrNotProbed))
			return
		}
		require.NotContains(t, parent, h.CookieKey+"="+h.CookieValue)
		require.Contains(t, own, h.CookieKey+"="+h.CookieValue)
	})
}
