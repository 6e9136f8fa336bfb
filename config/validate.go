package config

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
)

// Limits of settings that are not a pool's.
const (
	MinTick     = 100 * time.Millisecond // below it a tick overlaps the provider call of the one before
	MaxTick     = 5 * time.Minute        // above it a pool is in effect unattended
	MaxDebounce = 5 * time.Second        // above it the debounce is the reaction time
	MaxDuration = 31 * 24 * time.Hour    // of any other setting
	MinInterval = 10 * time.Millisecond  // of any timeout: it must outlast one round trip

	MaxProviders = 100 // each is a process
	MaxEnvNames  = 64  // of one provider's env
	MaxAddrs     = 32  // of the store
	// SilentHeartbeats: a machine that missed fewer than this many heartbeats is
	// not silent.
	SilentHeartbeats = 2
)

// validator checks what types alone do not, after everything has been decoded.
type validator struct {
	*decoder
	config   *Config
	rules    []Problem
	warnings []Problem
}

// read reports whether everything at and below path could be read.
func (v *validator) read(path string) bool { return !v.unread[path] }

// where is the node of the setting at path, or of the nearest section around it
// where the setting is not in the file.
func (v *validator) where(path string) Problem {
	at := path
	for at != "" && v.at[at] == nil {
		at = around(at)
	}
	return v.tree.problem(cmp.Or(v.at[at], v.tree.root), path, "")
}

// need records that the rule at path is broken unless ok. A rule about a setting
// that could not even be read, or about a section with such a setting, would
// speak of a default that nobody wrote, and is left out.
func (v *validator) need(ok bool, path, format string, args ...any) {
	if !ok && v.read(path) && len(v.rules) < maxKept {
		p := v.where(path)
		p.Text = fmt.Sprintf(format, args...)
		v.rules = append(v.rules, p)
	}
}

func (v *validator) warnf(path, format string, args ...any) {
	if len(v.warnings) >= maxKept {
		return
	}
	p := v.where(path)
	p.Text = fmt.Sprintf(format, args...)
	v.warnings = append(v.warnings, p)
}

func (v *validator) between(d, low, high time.Duration, path string) {
	v.need(low <= d && d <= high, path, "%s is out of range; use %s to %s", d, low, high)
}

func (v *validator) run() {
	c := v.config
	v.between(c.Tick, MinTick, MaxTick, "tick")
	v.between(c.Debounce, 0, MaxDebounce, "debounce")
	v.need(c.Replica == "" || replicaName(c.Replica), "replica",
		"%s cannot name a replica; use 1 to %d letters, digits, dots, - and _", quote(c.Replica), maxReplicaBytes)
	v.gitlab()
	v.listen()
	v.access()
	v.router()
	v.admission()
	v.debug()
	v.coordinator()
	v.store()
	v.log()
	v.timeouts()
	v.providers()
	v.pools()
	v.cells()
}

const maxReplicaBytes = 128

func replicaName(s string) bool {
	return len(s) <= maxReplicaBytes && regexp.MustCompile(`^[A-Za-z0-9._-]+$`).MatchString(s)
}

func (v *validator) listen() {
	l := v.config.Listen
	t := l.TLS
	v.need((t.CertFile == "") == (t.KeyFile == ""), "listen.tls", "cert_file and key_file belong together; set both or neither")
	v.need(t.CAFile == "" || t.Enabled(), "listen.tls.ca_file", "client certificates need TLS; set cert_file and key_file too")
	var taken []listener
	for _, at := range []struct{ path, address string }{
		{"listen.runners", l.Runners},
		{"listen.api", l.API},
		{"listen.metrics", l.Metrics},
		{"listen.gitlab", l.GitLab},
		{"listen.job_router", l.JobRouter},
		{"listen.debug", l.Debug},
	} {
		if at.address == "" && (at.path == "listen.gitlab" || at.path == "listen.job_router" || at.path == "listen.debug") {
			continue
		}
		address, err := hostPort(at.address)
		if err != nil {
			v.need(false, at.path, "%s: %v", quote(at.address), err)
			continue
		}
		if i := slices.IndexFunc(taken, func(o listener) bool { return o.meets(address) }); i >= 0 {
			v.need(false, at.path, "%s is already used by %s; use another port", at.address, taken[i].path)
		}
		taken = append(taken, listener{at.path, address})
		v.plaintext(at.path, address)
	}
}

// listener is where something listens, and by which setting.
type listener struct {
	path    string
	address netip.AddrPort
}

// meets reports whether nothing else can listen there: on a port of every address nothing
// can on one of them. Port 0 is one that is free.
func (l listener) meets(o netip.AddrPort) bool {
	mine, other := l.address.Addr().Unmap(), o.Addr().Unmap()
	return o.Port() != 0 && l.address.Port() == o.Port() && (mine == other || mine.IsUnspecified() || other.IsUnspecified())
}

// plaintext refuses what anybody on the network could read and change.
func (v *validator) plaintext(path string, address netip.AddrPort) {
	switch l := v.config.Listen; {
	case l.TLS.Enabled() || v.config.opts.ProviderOptional:
	case !address.Addr().IsLoopback():
		v.need(false, path, "%s can be reached from other machines and would be plaintext; set listen.tls.cert_file and listen.tls.key_file, or use a loopback address such as 127.0.0.1:%d", address, address.Port())
	case !l.InsecureLoopback:
		v.need(false, path, "would be plaintext; set listen.tls.cert_file and listen.tls.key_file, or allow it on loopback with listen.insecure_loopback: true")
	}
}

// hostPort reads an address to listen on. A name would have to be looked up, and
// may mean something else tomorrow: only "localhost" and numbers are taken.
func hostPort(s string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("write HOST:PORT, such as 127.0.0.1:7700")
	}
	switch host {
	case "localhost":
		host = "127.0.0.1"
	case "":
		host = "0.0.0.0"
	}
	address, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("write an IP address and a port from 0 to 65535, such as 127.0.0.1:7700")
	}
	return address, nil
}

// reached returns the host of an address that somebody connects to; ok is false for what
// is no HOST:PORT, such as a URL, port 0 or an IPv6 address without brackets.
func reached(s string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(s)
	n, notNumber := strconv.ParseUint(port, 10, 16)
	return host, err == nil && notNumber == nil && n > 0 && host != "" && !strings.ContainsAny(host, "/@ ")
}

func (v *validator) store() {
	r := v.config.Store.Redis
	if r == nil {
		return
	}
	v.need(len(r.Addrs) > 0, "store.redis.addrs", "name at least one server as HOST:PORT, or leave store.redis out for the embedded store")
	v.need(len(r.Addrs) <= MaxAddrs, "store.redis.addrs", "%d addresses, at most %d are allowed", len(r.Addrs), MaxAddrs)
	for i, a := range r.Addrs {
		_, ok := reached(a)
		v.need(ok, fmt.Sprintf("store.redis.addrs[%d]", i), "%s: write HOST:PORT, such as redis.internal:6379", quote(a))
	}
	v.need(r.PasswordFile == "" || r.PasswordEnv == "", "store.redis.password_env", "password_file is set too; keep one of them")
	if s := r.Sentinel; s != nil {
		v.need(s.MasterName != "", "store.redis.sentinel.master_name", "must name the master that the Sentinels watch, such as mymaster")
		v.need(s.PasswordFile == "" || s.PasswordEnv == "", "store.redis.sentinel.password_env", "password_file is set too; keep one of them")
		v.need(!r.Cluster, "store.redis.cluster", "a Cluster has no Sentinels; remove cluster or sentinel")
	}
	v.need(r.Database == 0 || !r.Cluster, "store.redis.database", "a Cluster has only database 0; remove it")
	v.need(r.Database >= 0, "store.redis.database", "%d is negative; use 0 or more", r.Database)
	v.need(len(r.Addrs) <= 1 || r.Cluster || r.Sentinel != nil, "store.redis.addrs",
		"several addresses need sentinel.master_name or cluster: true, to say what they are")
	if t := r.TLS; t != nil {
		v.need((t.CertFile == "") == (t.KeyFile == ""), "store.redis.tls", "cert_file and key_file belong together; set both or neither")
	}
}

func (v *validator) log() {
	l := v.config.Log
	v.oneOf(l.Level, "log.level", "debug", "info", "warn", "error")
	v.oneOf(l.Format, "log.format", "text", "json")
}

func (v *validator) oneOf(got, path string, allowed ...string) {
	v.need(slices.Contains(allowed, got), path, "%s: use %s", quote(got), strings.Join(allowed, ", "))
}

func (v *validator) timeouts() {
	t := v.config.Timeouts
	v.between(t.Pending, MinInterval, MaxDuration, "timeouts.pending")
	v.between(t.Unmatched, MinInterval, MaxDuration, "timeouts.unmatched")
	v.between(t.Assign, MinInterval, MaxDuration, "timeouts.assign")
	v.between(t.HeartbeatEvery, MinInterval, 5*time.Minute, "timeouts.heartbeat_every")
	v.between(t.Silent, MinInterval, MaxDuration, "timeouts.silent")
	v.need(t.Silent >= SilentHeartbeats*t.HeartbeatEvery, "timeouts.silent",
		"%s is less than %d heartbeats of %s: one late heartbeat would make a machine count as silent; set %s or more",
		t.Silent, SilentHeartbeats, t.HeartbeatEvery, SilentHeartbeats*t.HeartbeatEvery)
}

var (
	sha256Hex = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (v *validator) providers() {
	c := v.config
	v.need(len(c.Providers) <= MaxProviders, "providers", "%d providers, at most %d are allowed", len(c.Providers), MaxProviders)
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		p, path := c.Providers[name], "providers."+name
		v.need(spillway.PoolName(name), path, "%s cannot name a provider; use 1 to %d of a-z, 0-9, - and _, beginning with a letter or digit", quote(name), spillway.MaxPoolNameBytes)
		v.need(p.Plugin != "", path+".plugin", "must be the plugin's file: a path, or a name in plugin_dir")
		v.need(p.Plugin == "" || strings.Contains(p.Plugin, "/") || c.PluginDir != "" || c.opts.ProviderOptional, path+".plugin",
			"%s is a bare name, so plugin_dir must say where it is; set plugin_dir or write a path", quote(p.Plugin))
		v.need(p.SHA256 == "" || sha256Hex.MatchString(p.SHA256), path+".sha256", "must be 64 hex digits, as sha256sum prints them")
		v.need(len(p.Env) <= MaxEnvNames, path+".env", "%d names, at most %d are allowed", len(p.Env), MaxEnvNames)
		for i, name := range p.Env {
			v.need(envName.MatchString(name), fmt.Sprintf("%s.env[%d]", path, i), "must be the name of a variable only; its value comes from the control plane's own environment")
		}
		if p.SHA256 == "" && !c.opts.ProviderOptional {
			v.warnf(path, "the plugin is not pinned: whatever file is there will be started; set sha256 to what sha256sum prints")
		}
	}
}
