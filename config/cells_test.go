package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/config"
)

func TestCellsAreRead(t *testing.T) {
	c, err := config.Parse("f", []byte(minimal+`
cells:
  name: eu
  peers:
    - {name: us, address: "us.example:7701", token: {file: /run/us}, tls: {}, cost_factor: 1.1, distance: 2}
    - {name: near, address: "localhost:7711"}
`))
	require.NoError(t, err)
	require.Equal(t, cells.Timing{}.WithDefaults(), c.Cells.Timing())
	require.Equal(t, cells.Terms{
		Peer: "us", CostFactor: 1.1, Distance: 2, MaxJobs: config.DefaultPeerJobs, SpillAfter: time.Minute, StartWithin: 5 * time.Minute,
	}, c.Cells.Terms(&c.Cells.Peers[0]))
	require.Equal(t, 1.0, c.Cells.Peers[1].CostFactor)
	_, err = config.Parse("f", []byte(minimal+`cells: {name: eu, peers: [{name: near, address: "[::1]:7711"}]}`))
	require.NoError(t, err, "loopback needs no TLS, whatever its family")
	c, err = config.Parse("f", []byte(minimal))
	require.NoError(t, err)
	require.Nil(t, c.Cells)
}

func TestMistakesInCells(t *testing.T) {
	peer := func(more string) string {
		return "cells: {name: eu, peers: [{name: us, address: 'localhost:1', " + more + "}]}"
	}
	many := ""
	for i := range config.MaxCellPeers + 1 {
		many += fmt.Sprintf("{name: p%d, address: 'localhost:1'},", i)
	}
	for _, c := range []struct{ name, text, want string }{
		{"no name", "cells: {region: x}", `cells.name: "" can't name a cell`},
		{"long name", "cells: {name: " + strings.Repeat("n", cells.MaxNameBytes+1) + "}", "can't name a cell; use 1 to 32 of"},
		{"long region", "cells: {name: eu, region: " + strings.Repeat("n", cells.MaxRegionBytes+1) + "}", "cells.region: 65 bytes, at most 64"},
		{"lease", "cells: {name: eu, lease: 2s}", "cells.lease: 2s is out of range; use 3s to 30m0s"},
		{"end_within", "cells: {name: eu, end_within: 1h}", "cells.end_within: 1h0m0s is out of range"},
		{"spill_after", "cells: {name: eu, spill_after: 1ms}", "cells.spill_after: 1ms is out of range; use 0s (not at all)"},
		{"start_within", "cells: {name: eu, start_within: 0s}", "cells.start_within: 0s is out of range"},
		{"cost", "cells: {name: eu, cost: -1}", "cells.cost: -1 is out of range"},
		{"itself", "cells: {name: eu, peers: [{name: eu, address: 'localhost:1'}]}", "cells.peers[0].name: eu is this cell itself"},
		{"twice", "cells: {name: eu, peers: [{name: us, address: 'localhost:1'}, {name: us, address: 'localhost:2'}]}", `cells.peers[1].name: "us" is the name of cells.peers[0] already`},
		{"no address", "cells: {name: eu, peers: [{name: us}]}", `cells.peers[0].address: "": write HOST:PORT`},
		{"URL for an address", "cells: {name: eu, peers: [{name: us, address: 'https://us.example:1'}]}", `cells.peers[0].address: "https://us.example:1": write HOST:PORT`},
		{"plaintext", "cells: {name: eu, peers: [{name: us, address: 'us.example:1'}]}", "cells.peers[0].tls: jobs and their secrets would cross the network in plaintext"},
		{"half a pair", peer("tls: {cert_file: a}"), "cells.peers[0].tls: cert_file and key_file belong together"},
		{"cost_factor", peer("cost_factor: 0"), "cells.peers[0].cost_factor: 0 is out of range; use more than 0"},
		{"distance", peer("distance: -1"), "cells.peers[0].distance: -1 is out of range"},
		{"max_jobs", peer("max_jobs: 1001"), "cells.peers[0].max_jobs: 1001 is out of range"},
		{"a secret", peer("token: glrt-notActuallyASecret00"), "cells.peers[0].token: a secret must not stand in this file"},
		{"too many", "cells: {name: eu, peers: [" + many + "]}", "cells.peers: 33 peers, at most 32 are allowed"},
		{"unknown", "cells: {name: eu, spil_after: 1s}", "cells.spil_after: unknown setting; did you mean spill_after?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Parse("f", []byte(minimal+"\n"+c.text))
			require.ErrorIs(t, err, config.ErrInvalid)
			require.Contains(t, err.Error(), c.want)
			require.NotContains(t, err.Error(), "notActually")
		})
	}
	_, err := config.Parse("f", []byte(pool("priority: 999")+peer("distance: 1")))
	require.ErrorContains(t, err, "pools[0].priority: 999 is for pools of other cells; use 0 to 998")
	_, err = config.Parse("f", []byte(pool("priority: 999")))
	require.NoError(t, err)
}
