package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// MaxSecretBytes bounds a secret [bytes]: a path that points to something else
// (a log, a device) should not be read to its end.
const MaxSecretBytes = 64 << 10

const masked = "[MASKED]"

// Secret is a value that no printing shows: not fmt, not JSON, YAML or slog.
// Only Reveal gives it, so that its uses can be found by that name.
type Secret struct{ value string }

// NewSecret makes s a secret.
func NewSecret(s string) Secret { return Secret{value: s} }

// Reveal returns the secret itself, for the one call that needs it.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.value == "" }

// Format masks the secret under every verb, %#v and %x too.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, masked) }

// String masks the secret.
func (s Secret) String() string { return masked }

// MarshalText masks the secret, in JSON too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }

// MarshalYAML masks the secret.
func (s Secret) MarshalYAML() (any, error) { return masked, nil }

// LogValue masks the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(masked) }

// SecretSource says where a secret is: in a file or in an environment variable,
// never in the configuration itself.
type SecretSource struct {
	File string `yaml:"file,omitempty"`
	Env  string `yaml:"env,omitempty"`
}

// IsZero reports whether no source is named.
func (s SecretSource) IsZero() bool { return s == SecretSource{} }

// ErrNoSecret is wrapped when the place that the configuration names holds none.
var ErrNoSecret = errors.New("no secret")

// Read gets the secret, without the line end that editors add. An empty one is
// an error: it would authenticate everybody or nobody.
func (s SecretSource) Read() (Secret, error) {
	switch {
	case s.File != "":
		return readSecretFile(s.File)
	case s.Env != "":
		v := strings.TrimRight(os.Getenv(s.Env), "\r\n")
		if v == "" {
			return Secret{}, fmt.Errorf("%w: environment variable %s is not set or empty; set it, or name a file instead", ErrNoSecret, s.Env)
		}
		return NewSecret(v), nil
	default:
		return Secret{}, fmt.Errorf("%w: neither file nor env is set", ErrNoSecret)
	}
}

func readSecretFile(path string) (Secret, error) {
	f, err := os.Open(path)
	if err != nil {
		return Secret{}, fmt.Errorf("%w: %w", ErrNoSecret, err)
	}
	defer func() { _ = f.Close() }() // read only: nothing can be lost
	b, err := io.ReadAll(io.LimitReader(f, MaxSecretBytes+1))
	if err != nil {
		return Secret{}, fmt.Errorf("%w: %w", ErrNoSecret, err)
	}
	if len(b) > MaxSecretBytes {
		return Secret{}, fmt.Errorf("%w: %s has more than %d bytes; is it the right file?", ErrNoSecret, path, MaxSecretBytes)
	}
	v := strings.TrimRight(string(b), "\r\n")
	if v == "" {
		return Secret{}, fmt.Errorf("%w: %s is empty", ErrNoSecret, path)
	}
	return NewSecret(v), nil
}
