package route

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spillway-ci/spillway"
)

// The labels by which a runner says where it belongs: in config.toml, [labels] or
// [runners.labels].
const (
	PoolLabel     = "spillway-pool"     // the pool's name
	InstanceLabel = "spillway-instance" // the provider's id of the instance
)

// Limits on what a runner says of itself.
const (
	// MaxRequestBytes bounds the body of POST /api/v4/jobs/request [bytes]. GitLab's
	// front answers 413 to a larger one.
	MaxRequestBytes = 32 << 10
	// MaxSystemIDBytes bounds a system_id [bytes]; GitLab keeps 64 characters
	// (ci_runner_machines.system_xid).
	MaxSystemIDBytes = 64
	// MaxLabels bounds the labels of a runner [entries], as GitLab Runner does.
	MaxLabels = 32
	// MaxLabelBytes bounds the value of one label [bytes], as GitLab Runner does.
	MaxLabelBytes = 256
	// MaxNameBytes bounds the name and the version of a runner [bytes]; what is longer
	// is cut, since both are for people only.
	MaxNameBytes = 255
)

// The errors of reading a request.
var (
	// ErrTooLarge: the body is larger than MaxRequestBytes.
	ErrTooLarge = errors.New("the job request is too large")
	// ErrMalformed: the body isn't what GitLab Runner sends.
	ErrMalformed = errors.New("the job request can't be read")
	// ErrNoSystem: the body has no usable system_id, so that it can't be known which
	// machine would get the job. Every GitLab Runner since 16.0 sends one.
	ErrNoSystem = errors.New("the job request has no usable system_id")
)

// Caller is who asks for a job.
type Caller struct {
	Token  string             // the SHA-256 of the runner token, in hex
	System spillway.MachineID // the runner process's system_id
	// Pool is the one that PoolLabel names if the token serves it, else the first of
	// the token's pools.
	Pool spillway.Pool
	// InstanceID is what InstanceLabel says. It is empty without that label: nothing else
	// in the request names the instance (the runner's info.name is the program's name, the
	// same everywhere). Such a machine is found on its instance by the system_id in the
	// metrics of the instance's runner.
	InstanceID string
	Version    string
	Name       string
	TwoPhase   bool            // commits to a job with state=running, so that an undelivered one is not lost
	Features   json.RawMessage // as they were sent; nil = none
	Labels     map[string]string
}

// Request is a job request, as far as we need it.
type Request struct {
	Token      string // secret: never logged
	System     string // as it was sent
	LastUpdate string
	Name       string
	Version    string
	TwoPhase   bool
	Features   json.RawMessage
	Labels     map[string]string
}

// requestInfo is the part of "info" that we need.
type requestInfo struct {
	Name     string            `json:"name"`
	Version  string            `json:"version"`
	Features json.RawMessage   `json:"features"`
	Labels   map[string]string `json:"labels"`
}

// ParseRequest reads the body of POST /api/v4/jobs/request. It doesn't judge what it
// reads beyond its form; Tokens.Caller does. No error quotes the body, which holds the
// token.
func ParseRequest(body []byte) (Request, error) {
	if len(body) > MaxRequestBytes {
		return Request{}, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, len(body), MaxRequestBytes)
	}
	// A map, because a struct would take "TOKEN" for "token", which GitLab doesn't.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return Request{}, fmt.Errorf("%w: it isn't a JSON object", ErrMalformed)
	}
	var r Request
	var info requestInfo
	for name, into := range map[string]any{
		"token": &r.Token, "system_id": &r.System, "last_update": &r.LastUpdate, "info": &info,
	} {
		raw, ok := fields[name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return Request{}, fmt.Errorf("%w: %q has the wrong type", ErrMalformed, name)
		}
	}
	r.Name, r.Version = info.Name, info.Version
	r.Features, r.Labels = info.Features, info.Labels
	var features map[string]json.RawMessage
	if len(r.Features) > 0 && json.Unmarshal(r.Features, &features) != nil {
		return Request{}, fmt.Errorf("%w: %q has the wrong type", ErrMalformed, "info.features")
	}
	r.TwoPhase = string(features["two_phase_job_commit"]) == "true"
	return r, nil
}

// Caller reads who asks with token for a job. The token isn't taken from the body,
// because a Job Router's caller has it in the metadata.
func (t *Tokens) Caller(token string, body []byte) (Caller, error) {
	r, err := ParseRequest(body)
	if err != nil {
		return Caller{}, err
	}
	return t.CallerOf(token, r)
}

// CallerOf is Caller for a request that has been read.
func (t *Tokens) CallerOf(token string, r Request) (Caller, error) {
	hash, pools, ok := t.Lookup(token)
	if !ok {
		return Caller{}, ErrUnknownToken
	}
	if !validSystem(r.System) {
		return Caller{}, fmt.Errorf("%w: use 1 to %d printable ASCII characters", ErrNoSystem, MaxSystemIDBytes)
	}
	if err := validLabels(r.Labels); err != nil {
		return Caller{}, err
	}
	c := Caller{
		Token: hash, System: spillway.MachineID(r.System), Pool: pools[0], InstanceID: r.Labels[InstanceLabel],
		Version: cut(r.Version), Name: cut(r.Name), TwoPhase: r.TwoPhase, Features: r.Features, Labels: r.Labels,
	}
	for i := range pools {
		if pools[i].Name == r.Labels[PoolLabel] {
			c.Pool = pools[i]
		}
	}
	return c, nil
}

// validSystem reports whether s can name a machine: it becomes a key in the store.
func validSystem(s string) bool {
	if s == "" || len(s) > MaxSystemIDBytes {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func validLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("%w: %d labels, at most %d are allowed", ErrMalformed, len(labels), MaxLabels)
	}
	for _, v := range labels {
		if len(v) > MaxLabelBytes {
			return fmt.Errorf("%w: a label of %d bytes, at most %d are allowed", ErrMalformed, len(v), MaxLabelBytes)
		}
	}
	return nil
}

// cut shortens s to MaxNameBytes without leaving half a character.
func cut(s string) string {
	if len(s) <= MaxNameBytes {
		return s
	}
	s = s[:MaxNameBytes]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return strings.TrimSpace(s)
}
