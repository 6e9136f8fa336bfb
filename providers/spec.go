package providers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spillway-ci/spillway/internal/program"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// MaxConfigBytes bounds a plugin's configuration [bytes].
const MaxConfigBytes = 1 << 20

// MaxEnv bounds the variables that a plugin may see.
const MaxEnv = 64

// Spec says which plugin to run, and how.
type Spec struct {
	Name   string   // of the provider in the configuration
	Path   string   // of the binary, absolute
	SHA256 string   // of the binary, in hex; empty: not pinned
	Config []byte   // a JSON object
	Env    []string // names of our variables that the plugin may see; all others it may not
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Validate reports every mistake, joined.
func (s *Spec) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, pluginsdk.Errorf(pluginsdk.KindInvalid, format, args...))
	}
	if s.Name == "" {
		wrong("a provider needs a name")
	}
	if !filepath.IsAbs(s.Path) {
		wrong("provider %q: plugin path %.200q is not absolute", s.Name, s.Path)
	}
	if s.SHA256 != "" && !program.HexSum.MatchString(s.SHA256) {
		wrong("provider %q: sha256 %.80q: use 64 hex digits", s.Name, s.SHA256)
	}
	if len(s.Config) > MaxConfigBytes {
		wrong("provider %q: %d bytes of config, the limit is %d", s.Name, len(s.Config), MaxConfigBytes)
	}
	if len(s.Env) > MaxEnv {
		wrong("provider %q: %d variables, the limit is %d", s.Name, len(s.Env), MaxEnv)
	}
	for _, name := range s.Env {
		switch {
		case !envName.MatchString(name):
			wrong("provider %q: %.80q can't name a variable", s.Name, name)
		case strings.HasPrefix(name, "PLUGIN_") || strings.HasPrefix(name, pluginsdk.CookieKey):
			wrong("provider %q: variable %s belongs to the handshake", s.Name, name)
		}
	}
	return errors.Join(errs...)
}

// environment is what the plugin sees, apart from go-plugin's own variables.
func (s *Spec) environment() []string {
	env := []string{pluginsdk.StdinEnv + "=1"}
	for _, name := range s.Env {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// key is equal for specs that one process can serve.
func (s *Spec) key(imageSum string) string {
	env := slices.Clone(s.Env)
	slices.Sort(env)
	sum := sha256.New()
	for _, part := range append([]string{imageSum, string(s.Config)}, env...) {
		_, _ = fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
