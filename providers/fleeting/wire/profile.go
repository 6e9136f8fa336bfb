package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Limits of a profile.
const (
	MaxProfileBytes    = 64 << 10
	MaxCookieBytes     = 1 << 10 // of the cookie's value
	MaxVersions        = 16      // protocol versions that are offered
	maxProtocolVersion = 1 << 16
	maxNameBytes       = 255 // of a name of the plugin's
	maxStates          = 100
	profileVersion     = 1 // of the file's form
)

// ErrProfile is a wire profile that can't be used. The text names every mistake.
var ErrProfile = errors.New("wire profile")

// Profile is all that is known of how a fleeting plugin is started and spoken to.
type Profile struct {
	Version    int        `json:"version" yaml:"version" config:"required"`
	Handshake  Handshake  `json:"handshake" yaml:"handshake" config:"required"`
	Binding    *Binding   `json:"binding,omitempty" yaml:"binding,omitempty"` // nil before inspect
	Provenance Provenance `json:"provenance" yaml:"provenance"`
}

// Handshake is what a plugin wants to be started with.
type Handshake struct {
	CookieKey        string `json:"cookie_key" yaml:"cookie_key"` // empty: nobody knows yet
	CookieValue      string `json:"cookie_value" yaml:"cookie_value"`
	ProtocolVersions []int  `json:"protocol_versions" yaml:"protocol_versions,flow"`
	AutoMTLS         bool   `json:"auto_mtls" yaml:"auto_mtls"`
	// Candidates are the names of variables that could be the cookie, where more than
	// one could. A person sets CookieKey to one of them and probes again.
	Candidates []string `json:"cookie_candidates,omitempty" yaml:"cookie_candidates,omitempty"`
}

// Binding says which methods and fields of the plugin are meant. Fields are paths
// below the request or the answer, those of Update.id and Update.state below the
// element of Update.instances.
type Binding struct {
	Service string            `json:"service" yaml:"service" config:"required"`
	Methods map[string]string `json:"methods" yaml:"methods" config:"required"` // by the name in this package
	Fields  map[string]string `json:"fields" yaml:"fields" config:"required"`   // by role
	States  map[string]State  `json:"states" yaml:"states" config:"required"`   // by the plugin's own name
}

// Provenance says where the profile comes from.
type Provenance struct {
	ProbedAt     time.Time `json:"probed_at,omitzero" yaml:"probed_at,omitempty"`
	InspectedAt  time.Time `json:"inspected_at,omitzero" yaml:"inspected_at,omitempty"`
	Binary       string    `json:"binary,omitempty" yaml:"binary,omitempty"` // its file's name
	BinarySHA256 string    `json:"binary_sha256,omitempty" yaml:"binary_sha256,omitempty"`
}

// Load reads the profile in a file.
func Load(path string) (*Profile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, MaxProfileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrProfile, path, err)
	}
	p, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrProfile, path, errors.Unwrap(err))
	}
	return p, nil
}

// Parse reads a profile, YAML or JSON. It is strict: what it doesn't know is a
// mistake, and its error names all of them.
func Parse(data []byte) (*Profile, error) {
	if len(data) > MaxProfileBytes {
		return nil, &profileError{fmt.Errorf("it has more than %d bytes", MaxProfileBytes)}
	}
	p, err := parse(data)
	if err != nil {
		return nil, &profileError{err}
	}
	return p, nil
}

// profileError is an ErrProfile around the mistakes.
type profileError struct{ mistakes error }

func (e *profileError) Error() string        { return ErrProfile.Error() + ": " + e.mistakes.Error() }
func (e *profileError) Unwrap() error        { return e.mistakes }
func (e *profileError) Is(target error) bool { return target == ErrProfile }

func parse(data []byte) (*Profile, error) {
	var value any
	in := yaml.NewDecoder(bytes.NewReader(data))
	if err := in.Decode(&value); err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	if err := in.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document")
	}
	object, err := json.Marshal(value)
	if err != nil {
		return nil, errors.New("keys must be strings")
	}
	p := new(Profile)
	if err := pluginsdk.DecodeConfig(object, p); err != nil {
		return nil, errors.New(strings.TrimPrefix(errors.Unwrap(err).Error(), "config: "))
	}
	return p, nil
}

// Encode is the inverse of Parse, in YAML.
func (p *Profile) Encode() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# How Spillway speaks to a fleeting plugin: made by `spillwayctl fleeting probe` and `inspect`.\n")
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(p); err != nil {
		return nil, err
	}
	return out.Bytes(), enc.Close()
}

// Save writes the profile to a file that only its owner can read, whole or not at
// all.
func (p *Profile) Save(path string) error {
	data, err := p.Encode()
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".wire-profile-*") // has mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

var (
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	hexSum    = regexp.MustCompile(`^[0-9a-f]{64}$`)
	fieldPath = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
)

// Check implements pluginsdk.ConfigChecker.
func (p *Profile) Check(problems *pluginsdk.Problems) {
	if p.Version != profileVersion {
		problems.Addf("version", "%d, this program knows %d", p.Version, profileVersion)
	}
}

// Check implements pluginsdk.ConfigChecker.
func (h *Handshake) Check(problems *pluginsdk.Problems) {
	if h.CookieKey != "" && (!envName.MatchString(h.CookieKey) || len(h.CookieKey) > maxNameBytes || isGoPlugin(h.CookieKey)) {
		problems.Addf("cookie_key", "it can't name a magic cookie's variable")
	}
	if len(h.CookieValue) > MaxCookieBytes || strings.Contains(h.CookieValue, "\x00") {
		problems.Addf("cookie_value", "use at most %d bytes, none of them 0", MaxCookieBytes)
	}
	if len(h.ProtocolVersions) > MaxVersions {
		problems.Addf("protocol_versions", "%d of them, use at most %d", len(h.ProtocolVersions), MaxVersions)
	}
	for i, v := range h.ProtocolVersions {
		if v < 0 || v > maxProtocolVersion {
			problems.Addf(fmt.Sprintf("protocol_versions[%d]", i), "%d, use 0 to %d", v, maxProtocolVersion)
		}
	}
}

// Check implements pluginsdk.ConfigChecker.
func (b *Binding) Check(problems *pluginsdk.Problems) {
	checkName(problems, "service", b.Service)
	for _, name := range slices.Sorted(maps.Keys(b.Methods)) {
		if !slices.Contains(methodNames(), name) {
			problems.Addf("methods."+name, "there is no such method; there are %s", strings.Join(methodNames(), ", "))
		}
		checkName(problems, "methods."+name, b.Methods[name])
	}
	for _, name := range slices.Sorted(maps.Keys(b.Fields)) {
		if _, ok := roleNamed(name); !ok {
			problems.Addf("fields."+name, "there is no such field; there are %s", strings.Join(roleNames(), ", "))
		}
		checkName(problems, "fields."+name, b.Fields[name])
	}
	if len(b.States) > maxStates {
		problems.Addf("states", "%d of them, use at most %d", len(b.States), maxStates)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(b.States)) {
		if !isState(b.States[name]) {
			problems.Addf("states."+name, "use creating, running, deleting, deleted, timeout or unknown")
		}
	}
}

func checkName(problems *pluginsdk.Problems, path, name string) {
	if !fieldPath.MatchString(name) || len(name) > maxNameBytes {
		problems.Addf(path, "it can't be a name in a plugin's descriptors")
	}
}

// Check implements pluginsdk.ConfigChecker.
func (p *Provenance) Check(problems *pluginsdk.Problems) {
	if p.BinarySHA256 != "" && !hexSum.MatchString(p.BinarySHA256) {
		problems.Addf("binary_sha256", "use 64 hex digits")
	}
}

// Startable is nil if the profile says enough to start a plugin.
func (p *Profile) Startable() error {
	h := p.Handshake
	var missing []string
	if h.CookieKey == "" {
		missing = append(missing, "handshake.cookie_key")
	}
	if h.CookieValue == "" {
		missing = append(missing, "handshake.cookie_value")
	}
	if len(h.ProtocolVersions) == 0 {
		missing = append(missing, "handshake.protocol_versions")
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s not known: run `spillwayctl fleeting probe` in a runner's place%s", ErrProfile, isAre(missing), candidates(h.Candidates))
}

func isAre(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1] + " are"
}

func candidates(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; the cookie may be " + strings.Join(names, " or ") + ": set handshake.cookie_key to one of them and probe again"
}

// Usable is nil if the profile says enough to drive a plugin.
func (p *Profile) Usable() error {
	if err := p.Startable(); err != nil {
		return err
	}
	if p.Binding == nil {
		return fmt.Errorf("%w: there is no binding: run `spillwayctl fleeting inspect BINARY --profile FILE --write`", ErrProfile)
	}
	return nil
}
