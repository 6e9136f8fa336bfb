package collect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-ci/spillway"
)

// maxTargetsBytes bounds a file of targets [bytes]: ten thousand of a hundred bytes,
// twice over.
const maxTargetsBytes = 2 << 20

// targetsFile is a file of targets as it was last understood.
type targetsFile struct {
	content []byte
	targets map[string]string
	err     error // why it isn't understood now: what it said before stays in force
}

// readFile reads the pool's file of targets, if it has one.
func (p *exporterPool) readFile() {
	if p.TargetsFile == "" {
		return
	}
	content, err := readAtMost(p.TargetsFile, maxTargetsBytes)
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &p.mu.file
	if err == nil && f.err == nil && f.content != nil && bytes.Equal(content, f.content) {
		return
	}
	var targets map[string]string
	if err == nil {
		f.content = content
		targets, err = parseTargets(content)
	}
	if f.err = err; err != nil {
		f.err = fmt.Errorf("the targets of %s: %w", p.TargetsFile, err)
		return
	}
	f.targets = targets
	p.choose()
}

func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	return content, err
}

func parseTargets(content []byte) (map[string]string, error) {
	var targets map[string]string
	if err := json.Unmarshal(content, &targets); err != nil {
		return nil, fmt.Errorf("not a JSON object of instance ids and HOST:PORT: %w", err)
	}
	for instance, address := range targets {
		host, port, err := net.SplitHostPort(address)
		n, notNumber := strconv.ParseUint(port, 10, 16)
		if err != nil || host == "" || notNumber != nil || n == 0 {
			return nil, fmt.Errorf("instance %.80q: %.80q: write HOST:PORT of the runner's metrics", instance, address)
		}
	}
	return targets, nil
}

// choose decides whom to ask. A runner whose address has not changed stays as it is;
// of one that is asked elsewhere from now on, what it said stays. The caller has
// locked mu.
func (p *exporterPool) choose() {
	wanted, fixed := p.wanted(), p.fixed()
	next := make(map[string]*runner, len(wanted))
	p.mu.excess = 0
	for _, instance := range slices.Sorted(maps.Keys(wanted)) {
		if len(next) == spillway.MaxInstancesPerPool {
			p.mu.excess = len(wanted) - len(next)
			break
		}
		address, old := wanted[instance], p.mu.runners[instance]
		switch {
		case old == nil:
			old = &runner{address: address}
		case address != old.address && (address != "" || fixed): // a provider's list may lack an address for once
			old = &runner{address: address, scrape: old.scrape, answered: old.answered, total: old.total, err: old.err}
		}
		next[instance] = old
	}
	p.mu.runners = next
}

// fixed reports whether the configuration says where each runner is asked, and nobody else.
func (p *exporterPool) fixed() bool { return p.TargetsFile != "" || len(p.Targets) > 0 }

// wanted is host:port by instance, empty where it isn't known.
func (p *exporterPool) wanted() map[string]string {
	targets := p.Targets
	if p.TargetsFile != "" {
		targets = p.mu.file.targets
	}
	if p.fixed() && !p.mu.isKnown {
		return targets
	}
	wanted := make(map[string]string, len(p.mu.listed))
	for _, t := range p.mu.listed {
		address := withPort(t.Address, p.Port)
		if p.fixed() {
			address = targets[t.Instance]
		}
		wanted[t.Instance] = address
	}
	return wanted
}

// withPort adds the port to an address that has none.
func withPort(address string, port int) string {
	if address == "" {
		return ""
	}
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(port))
}
