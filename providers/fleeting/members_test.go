package fleeting

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/internal/program"
	"github.com/spillway-ci/spillway/providers/fleeting/wire"
)

var (
	noon   = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	rules1 = rules{fill: 10 * time.Minute, remove: time.Minute}
)

// truth is a cloud that does what it was asked for, in its own time, and whose lists
// now and then lack something.
type truth struct {
	made      int
	instances []*realInstance
}

type realInstance struct {
	id      string
	hidden  int // lists until it is in one
	state   wire.State
	removed bool
	omitted int // lists in a row
}

// alive is what the group has: what was accepted and not removed.
func (c *truth) alive() int {
	n := 0
	for _, in := range c.instances {
		if !in.removed {
			n++
		}
	}
	return n
}

// list is an Update. Nothing that is there is omitted as often as it takes to be
// gone, and what ends is deleting before it is gone.
func (c *truth) list(t *rapid.T) []wire.Instance {
	var list []wire.Instance
	for _, in := range slices.Clone(c.instances) {
		if in.hidden > 0 {
			in.hidden--
			continue
		}
		if in.omitted < missesToBeGone-1 && rapid.IntRange(0, 5).Draw(t, "omit") == 0 && in.state != wire.Deleted {
			in.omitted++
			continue
		}
		in.omitted = 0
		list = append(list, wire.Instance{ID: in.id, State: in.state})
		switch {
		case in.state == wire.Deleted:
			c.instances = slices.DeleteFunc(c.instances, func(other *realInstance) bool { return other == in })
		case in.state == wire.Deleting:
			in.state = wire.Deleted
		case in.removed:
			in.state = wire.Deleting
		case rapid.Bool().Draw(t, "boots"):
			in.state = wire.Running
		}
	}
	return list
}

// As long as nothing is given up, the number is what the cloud has or will have: no
// instance is counted twice, none is forgotten.
func TestDesiredIsWhatThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g members
		c := &truth{}
		now := noon
		g.take(now, nil, rules1)
		t.Repeat(map[string]func(*rapid.T){
			"increase": func(t *rapid.T) {
				n := rapid.IntRange(1, 4).Draw(t, "n")
				for range n {
					c.made++
					hidden := rapid.IntRange(0, 4).Draw(t, "hidden")
					c.instances = append(c.instances, &realInstance{id: fmt.Sprintf("i-%d", c.made), hidden: hidden, state: wire.Creating})
				}
				g.accepted(now, n)
			},
			"list": func(t *rapid.T) {
				now = now.Add(time.Second)
				g.take(now, c.list(t), rules1)
			},
			"remove": func(t *rapid.T) {
				ids := g.removable(idsOf(c))
				if len(ids) == 0 {
					t.Skip("nothing to remove")
				}
				id := rapid.SampledFrom(ids).Draw(t, "id")
				for _, in := range c.instances {
					if in.id == id {
						in.removed = true
					}
				}
				g.removed(now, []string{id})
			},
			"": func(t *rapid.T) {
				require.Equal(t, c.alive(), g.desired())
				require.Empty(t, g.failures)
				require.LessOrEqual(t, len(g.instances()), len(c.instances), "nothing is shown that isn't there")
			},
		})
	})
}

func idsOf(c *truth) (ids []string) {
	for _, in := range c.instances {
		ids = append(ids, in.id)
	}
	return ids
}

func TestGoneAfterFiveLists(t *testing.T) {
	var g members
	g.take(noon, []wire.Instance{{ID: "a", State: wire.Running}}, rules1)
	for i := range missesToBeGone - 1 {
		g.take(noon, nil, rules1)
		require.Equal(t, 1, g.desired(), "missing %d times", i+1)
		require.True(t, g.changing(), "the next look comes soon")
	}
	g.take(noon, nil, rules1)
	require.Zero(t, g.desired())
	require.Empty(t, g.instances())
}

func TestUnsureLaunchIsForgottenSooner(t *testing.T) {
	var g members
	g.take(noon, nil, rules1)
	g.unsure(noon, 3)
	g.accepted(noon, 2)
	require.Equal(t, 5, g.desired())
	g.take(noon.Add(unsureTime-1), nil, rules1)
	require.Equal(t, 5, g.desired())
	g.take(noon.Add(unsureTime), nil, rules1)
	require.Equal(t, 2, g.desired())
	require.Empty(t, g.failures, "the call that had no answer was the failure")
	g.take(noon.Add(rules1.fill), nil, rules1)
	require.Zero(t, g.desired())
	require.Len(t, g.failures, 1)
	// What comes after all counts, for it is there.
	g.take(noon.Add(rules1.fill), []wire.Instance{{ID: "late", State: wire.Creating}}, rules1)
	require.Equal(t, 1, g.desired())
}

func TestFailuresAreBounded(t *testing.T) {
	var g members
	for i := range maxFailures + 5 {
		g.refused(noon.Add(time.Duration(i)), 2, 1)
	}
	require.Len(t, g.failures, maxFailures)
	require.Equal(t, noon.Add(maxFailures+4), g.failures[maxFailures-1].At)
}

func TestRestartsBackOff(t *testing.T) {
	var r restarts
	var waits []time.Duration
	for range 9 {
		r.died(noon, 0, "")
		waits = append(waits, r.wait(noon))
	}
	s := time.Second
	require.Equal(t, []time.Duration{0, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}, waits)
	r.died(noon, stableAfter, "")
	require.Zero(t, r.wait(noon), "one that lived for long starts a new count")
}

// Whatever the plugin's configuration holds is taken out of what is shown.
func TestSecretsAreRedacted(t *testing.T) {
	g := &group{secrets: secretsOf([]byte(`{"a":[{"key":"-----BEGIN-----\nline-one\nline-two"}],"b":"secret","c":"secretsecret","d":"eu"}`), []string{"TOKEN=from-the-environment"})}
	require.Equal(t, "x [redacted] y [redacted] z eu [redacted]", g.clean("x line-two y secretsecret z eu from-the-environment"))
}

// T8: of what the plugin said last only the beginning of each line is kept. A secret that
// lies across that is taken out as a whole before.
func TestT8_ASecretThatWouldBeCutIsTakenOut(t *testing.T) {
	const secret = "a-token-that-nobody-may-see"
	path := filepath.Join(t.TempDir(), "plugin")
	script := "#!/bin/sh\necho " + strings.Repeat("x", program.MaxTailBytes-len(secret)/2) + secret + " >&2\nexit 1\n"
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	image, err := program.Open(path, "", "")
	require.NoError(t, err)
	defer func() { require.NoError(t, image.Close()) }()
	g := newGroup(config{PluginConfig: []byte(`{"token":"` + secret + `"}`)}, &wire.Profile{Handshake: wire.Handshake{
		CookieKey: "GATE", CookieValue: "open", ProtocolVersions: []int{1},
	}}, image)
	err = g.launch(t.Context())
	require.ErrorContains(t, err, "it said: xxx")
	require.NotContains(t, err.Error(), secret[:len("a-token")])
}
