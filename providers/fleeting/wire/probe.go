package wire

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What go-plugin adds to the environment of a plugin besides the cookie: the
// constants of its own source.
const (
	versionsVariable = "PLUGIN_PROTOCOL_VERSIONS"
	certVariable     = "PLUGIN_CLIENT_CERT"
)

var goPluginVariables = []string{
	versionsVariable, certVariable, "PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT", "PLUGIN_MULTIPLEX_GRPC", "PLUGIN_UNIX_SOCKET_DIR", "PLUGIN_UNIX_SOCKET_GROUP",
}

func isGoPlugin(name string) bool { return slices.Contains(goPluginVariables, name) }

// ErrNotProbed is an environment that tells nothing. The text says why.
var ErrNotProbed = errors.New("nothing was learnt")

// ErrAmbiguous is more than one thing that could be meant. The text names them and
// says what decides.
var ErrAmbiguous = errors.New("more than one could be meant")

// Probe makes the handshake from the environments ("NAME=value") of a process that
// was started as a plugin and of the process that started it: what is new or
// another is what go-plugin added. Of no variable but the cookie is a value kept.
//
// cookieKey decides which of several is the cookie; empty: the only one. Where that
// is not clear the error is ErrAmbiguous, and the handshake has the names.
func Probe(own, parent []string, cookieKey string) (Handshake, error) {
	had := map[string]bool{}
	for _, entry := range parent {
		had[entry] = true
	}
	var h Handshake
	added := map[string]string{}
	started := false
	for _, entry := range own {
		name, value, ok := strings.Cut(entry, "=")
		switch {
		case !ok || had[entry]:
		case name == versionsVariable:
			started = true
			h.ProtocolVersions = versionsOf(value)
		case name == certVariable:
			h.AutoMTLS = true
		case !isGoPlugin(name) && envName.MatchString(name) && value != "" && len(value) <= MaxCookieBytes:
			added[name] = value
			h.Candidates = append(h.Candidates, name)
		}
	}
	slices.Sort(h.Candidates)
	if !started {
		return Handshake{}, fmt.Errorf("%w: go-plugin did not start this process, or something between it and this process hid that: %s is not new here", ErrNotProbed, versionsVariable)
	}
	if len(h.ProtocolVersions) == 0 {
		return Handshake{}, fmt.Errorf("%w: %s is not a list of versions", ErrNotProbed, versionsVariable)
	}
	return h.choose(added, cookieKey)
}

// choose takes the cookie from what was added.
func (h Handshake) choose(added map[string]string, cookieKey string) (Handshake, error) {
	switch {
	case cookieKey != "":
		value, ok := added[cookieKey]
		if !ok {
			return Handshake{}, fmt.Errorf("%w: %s, which the profile names as the cookie, was not added%s", ErrNotProbed, cookieKey, candidates(h.Candidates))
		}
		h.CookieKey, h.CookieValue, h.Candidates = cookieKey, value, nil
		return h, nil
	case len(h.Candidates) == 0:
		return Handshake{}, fmt.Errorf("%w: no variable was added that could be the cookie", ErrNotProbed)
	case len(h.Candidates) > 1:
		return h, fmt.Errorf("%w%s", ErrAmbiguous, candidates(h.Candidates))
	}
	h.CookieKey = h.Candidates[0]
	h.CookieValue, h.Candidates = added[h.CookieKey], nil
	return h, nil
}

// versionsOf reads go-plugin's list; nil if it isn't one.
func versionsOf(value string) []int {
	var versions []int
	for part := range strings.SplitSeq(value, ",") {
		v, err := strconv.Atoi(part)
		if err != nil || v < 0 || v > maxProtocolVersion || len(versions) == MaxVersions {
			return nil
		}
		versions = append(versions, v)
	}
	slices.Sort(versions) // go-plugin writes them in any order
	return versions
}

// NewProfile is a profile with nothing but a handshake.
func NewProfile(h Handshake, probedAt time.Time) *Profile {
	return &Profile{Version: profileVersion, Handshake: h, Provenance: Provenance{ProbedAt: probedAt.UTC().Truncate(time.Second)}}
}
