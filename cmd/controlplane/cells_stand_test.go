package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/store/storetest"
)

// crossing is the network between two cells.
type crossing struct {
	t        *testing.T
	listener net.Listener
	target   string

	mu struct {
		sync.Mutex
		cut   bool
		conns []net.Conn
	}
}

func newCrossing(t *testing.T, target string) *crossing {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := &crossing{t: t, listener: l, target: target}
	t.Cleanup(func() { _ = l.Close(); g.cut(true) })
	go g.serve()
	return g
}

func (g *crossing) address() string { return g.listener.Addr().String() }

func (g *crossing) serve() {
	for {
		in, err := g.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", g.target)
		g.mu.Lock()
		if err != nil || g.mu.cut {
			g.mu.Unlock()
			_ = in.Close()
			if err == nil {
				_ = out.Close()
			}
			continue
		}
		g.mu.conns = append(g.mu.conns, in, out)
		g.mu.Unlock()
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
			}()
		}
	}
}

// cut takes the network away, or brings it back.
func (g *crossing) cut(cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.cut = cut
	if cut {
		for _, c := range g.mu.conns {
			_ = c.Close()
		}
		g.mu.conns = nil
	}
}

// cell is a control plane of a test that is one cell of several.
type cell struct {
	*replica
	t                *testing.T
	name, api, path  string
	number           int // of the replica
	redis            string
	least, most      int // instances
	cost             float64
	peers            []string // of the configuration
	growth           bool     // is offered
	lease, endWithin time.Duration
	spillAfter       time.Duration
	token            string
	runners          string
}

func newCell(t *testing.T, name string, least, most int, cost float64) *cell {
	t.Helper()
	c := &cell{
		t: t, name: name, number: 1, api: peertest.FreeAddress(t), runners: peertest.FreeAddress(t), redis: storetest.StartServer(t).Addr, least: least, most: most, cost: cost,
		lease: time.Minute, endWithin: 15 * time.Second, spillAfter: time.Second, path: filepath.Join(t.TempDir(), name+".yaml"),
	}
	c.token = filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(c.token, []byte("a-token-of-cell-"+name), 0o600))
	return c
}

// another is one more replica of the cell.
func (c *cell) another() *cell {
	c.t.Helper()
	r := *c
	r.number++
	r.api, r.runners, r.path = peertest.FreeAddress(c.t), peertest.FreeAddress(c.t), filepath.Join(c.t.TempDir(), "another.yaml")
	return &r
}

// joins makes another cell a peer, which is reached at an address.
func (c *cell) joins(other *cell, address string) {
	c.peers = append(c.peers, fmt.Sprintf("{name: %s, address: %q}", other.name, address))
}

func (c *cell) config() string {
	return fmt.Sprintf(`replica: %s-%d
listen: {runners: %q, api: %q, metrics: "127.0.0.1:0"}
store: {redis: {addrs: [%q]}}
tick: 500ms
timeouts: {heartbeat_every: 500ms, silent: 20s}
plugin_dir: %s
providers:
  local:
    plugin: spillway-provider-local
    env: [PATH]
    config: {agent: %s, router: %q, plaintext: true, stop_grace: 2s, groups: [{name: linux, max: %d, token_file: %s}]}
pools:
  - {name: linux, capability: {tags: [linux]}, cost_per_job: %g, provider: local, runner_token: {file: %s}, policy: {min: %d, max: %d}}
cells: {name: %s, spill_after: %s, lease: %s, end_within: %s, offer_growth: %t, peers: [%s]}
`, c.name, c.number, c.runners, c.api, c.redis, filepath.Join(bin, "plugins"), filepath.Join(bin, "spillway-agent"), c.runners, c.most, c.token,
		c.cost, c.token, c.least, c.most, c.name, c.spillAfter, c.lease, c.endWithin, c.growth, strings.Join(c.peers, ", "))
}

func (c *cell) start() {
	c.t.Helper()
	require.NoError(c.t, os.WriteFile(c.path, []byte(c.config()), 0o600))
	c.replica = startReplicaAt(c.t, nil, c.path)
}

// ready waits for the cell's own machines.
func (c *cell) ready() {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		out, err := c.ctl("runners", "--pool", "linux", "-o", "json")
		return err == nil && strings.Count(out, `"machine_id"`) >= c.least
	}, within, 5*poll, "%v", c.err)
}

// linked waits for the link to a peer, with free places there.
func (c *cell) linked(peer string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		out, err := c.ctl("cells", "list")
		return err == nil && strings.Contains(out, "linked") && strings.Contains(out, "cell-"+peer+"-")
	}, within, 5*poll, "%v", c.err)
}

// awaitFree waits until a peer's offer is of so many free places.
func (c *cell) awaitFree(peer string, free int) {
	c.t.Helper()
	list := func() string { return c.must("cells", "list", "-o", "json") }
	require.Eventually(c.t, func() bool {
		var cells struct {
			Peers []struct {
				Name  string `json:"name"`
				Pools []struct {
					Free int `json:"free"`
				} `json:"pools"`
			} `json:"peers"`
		}
		require.NoError(c.t, json.Unmarshal([]byte(list()), &cells))
		for _, p := range cells.Peers {
			if p.Name == peer && len(p.Pools) == 1 {
				return p.Pools[0].Free == free
			}
		}
		return false
	}, within, 5*poll, "%v\n%v", lazily(list), c.err)
}

// submit pushes a job.
func (c *cell) submit(id, script string, more ...string) {
	c.t.Helper()
	c.must(append([]string{"jobs", "submit", "--id", id, "--tag", "linux", "--script", script}, more...)...)
}

// shown is a job's record as JSON.
func (c *cell) shown(id string) string {
	out, err := c.ctl("jobs", "show", id, "-o", "json")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(out), "")
}

// until waits for something in a job's record.
func (c *cell) until(id, want string) string {
	c.t.Helper()
	var last string
	require.Eventually(c.t, func() bool {
		last = c.shown(id)
		return strings.Contains(last, want)
	}, within, 5*poll, "job %s: want %s, have\n%s\n%v", id, want, lazily(func() string { return c.shown(id) }), c.err)
	return last
}

// lazily is text that is made when it is printed.
type lazily func() string

func (l lazily) String() string { return l() }

// fill has the cell's only machine taken.
func (c *cell) fill() {
	c.t.Helper()
	c.fillAs("hold")
}

// alone is a script that notes when it runs beside itself, in whatever cell.
func alone(folder, then string) string {
	return fmt.Sprintf("exec 9>>%s/lock; flock -n 9 || echo overlap >>%s/diary; echo run >>%s/diary; %s", folder, folder, folder, then)
}

func notes(t *testing.T, folder string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "diary"))
	if os.IsNotExist(err) {
		return ""
	}
	require.NoError(t, err)
	return string(text)
}

// fillAs has the cell's only machine taken by a job of that id.
func (c *cell) fillAs(id string) {
	c.t.Helper()
	c.submit(id, "sleep 1000")
	require.Contains(c.t, c.until(id, `"JOB_STATE_RUNNING"`), `"pool":"linux"`)
}
