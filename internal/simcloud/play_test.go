package simcloud_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/scenario"
	"github.com/spillway-ci/spillway/internal/sim"
	"github.com/spillway-ci/spillway/internal/simcloud"
)

// onePool is the beginning of most stories here.
const onePool = "config: {pools: [{name: linux, capability: {tags: [docker]}, policy: {%s}}]}\n"

// epoch is when stories begin.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func parse(t *testing.T, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse(filepath.Join(t.TempDir(), "story.yaml"), []byte(text))
	require.NoError(t, err, text)
	return s
}

// play tells a story, which must go as it expects, without a violation.
func play(t *testing.T, text string, cloud sim.NewCloud) *sim.Result {
	t.Helper()
	r, err := sim.RunWith(t.Context(), parse(t, text), sim.Options{Cloud: cloud})
	require.NoError(t, err)
	check(t, r, nil)
	return r
}

// playASG is play on an account whose groups are changed before they are made.
func playASG(t *testing.T, text string, o simcloud.ASGOptions, plan func(*simcloud.ASG)) (*sim.Result, *simcloud.ASG) {
	t.Helper()
	a := simcloud.NewASG(o)
	if plan != nil {
		plan(a)
	}
	return play(t, text, a.Cloud), a
}

// clouds are both, for stories that go the same way on each.
func clouds(t *testing.T, f func(t *testing.T, cloud sim.NewCloud)) {
	for _, name := range slices.Sorted(maps.Keys(newClouds)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, newClouds[name]())
		})
	}
}

// ours are the calls of one operation that the provider made.
func ours(a *simcloud.ASG, operation string) (calls []asgstub.Call) {
	for _, c := range a.Stub.Calls() {
		if c.Operation == operation && c.Who == simcloud.Spillway {
			calls = append(calls, c)
		}
	}
	return calls
}

// number is an argument that is a number.
func number(t *testing.T, c asgstub.Call, name string) int {
	t.Helper()
	n, err := strconv.Atoi(c.Arg(name))
	require.NoError(t, err)
	return n
}

// at is a time of the story.
func at(when time.Time) time.Duration { return when.Sub(epoch) }
