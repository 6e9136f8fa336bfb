package simcloud_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/sim"
	"github.com/spillway-ci/spillway/internal/simcloud"
)

const (
	scaleInTellings = 10
	roundsEach      = 20 // of each telling: 200 in all
)

// tellings are the seeds.
func tellings() uint64 {
	if testing.Short() || underRace {
		return 3
	}
	return scaleInTellings
}

// rounds is a story of scale-ins: in each round some jobs of random lengths come,
// and while the longer ones run the instances of the shorter ones become idle. The
// group takes a busy instance whenever its number is lowered without a name.
func rounds(seed uint64, protected bool) string {
	const length = 200 // of a round [s]
	g := rand.New(rand.NewPCG(seed, 24))
	var b strings.Builder
	fmt.Fprintf(&b, "seed: %d\nduration: %ds\ntick: 20s\n", seed, length*(roundsEach+3))
	fmt.Fprintf(&b, onePool, "max: 8, idle_time: 30s")
	fmt.Fprintf(&b, "cloud: {linux: {boot: 20s, victim: busy_first, protected: %t}}\njobs:\n", protected)
	for round := range roundsEach {
		begin := round * length
		fmt.Fprintf(&b, "  - {at: %ds, id: long-%d, count: %d, tags: [docker], duration: %ds}\n", begin+g.IntN(20), round, 1+g.IntN(4), 100+g.IntN(150))
		fmt.Fprintf(&b, "  - {at: %ds, id: short-%d, count: %d, tags: [docker], duration: %ds}\n", begin+g.IntN(40), round, 1+g.IntN(4), 5+g.IntN(50))
	}
	return b.String()
}

// ledger follows a group's number through the writes that were made to it.
type ledger struct {
	t                *testing.T
	desired, removed int
}

// raised is a call that sets the number: never to less.
func (l *ledger) raised(to int) {
	l.t.Helper()
	require.Greater(l.t, to, l.desired, "the number was lowered without a name")
	l.desired = to
}

// named is an instance that was ended by its name, and the number with it.
func (l *ledger) named() {
	l.desired--
	l.removed++
}

// TestC24_200RandomScaleInRounds_ASG: in 200 rounds nothing is ended but by its
// name, each with a decrement, and nothing that is busy.
func TestC24_200RandomScaleInRounds_ASG(t *testing.T) {
	for seed := range tellings() {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			a := simcloud.NewASG(simcloud.ASGOptions{})
			r := play(t, rounds(seed, seed%2 == 0), a.Cloud)
			l := ledger{t: t}
			for _, c := range a.Stub.Calls() {
				switch {
				case !c.Writes():
				case c.Operation == "SetDesiredCapacity":
					l.raised(number(t, c, "DesiredCapacity"))
				case c.Operation == "TerminateInstanceInAutoScalingGroup":
					require.Equal(t, "true", c.Arg("ShouldDecrementDesiredCapacity"))
					l.named()
				default:
					t.Errorf("a write that is none of a scale-in: %s", c.Operation)
				}
			}
			requireNoKill(t, r, &l)
		})
	}
}

// TestC24_200RandomScaleInRounds_MIG is the same on a managed instance group, where
// a resize is what chooses a victim.
func TestC24_200RandomScaleInRounds_MIG(t *testing.T) {
	for seed := range tellings() {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			m := simcloud.NewMIG(simcloud.MIGOptions{})
			r := play(t, rounds(seed, false), m.Cloud)
			l := ledger{t: t}
			for _, c := range m.Stubs["linux"].Calls() {
				switch {
				case strings.HasSuffix(c.Op, ".resize"):
					query, err := url.ParseQuery(c.Query)
					require.NoError(t, err)
					size, err := strconv.Atoi(query.Get("size"))
					require.NoError(t, err)
					l.raised(size)
				case strings.HasSuffix(c.Op, ".deleteInstances"):
					var body struct {
						Instances []string `json:"instances"`
					}
					require.NoError(t, json.Unmarshal([]byte(c.Body), &body))
					for range body.Instances {
						l.named()
					}
				}
			}
			requireNoKill(t, r, &l)
		})
	}
}

func requireNoKill(t *testing.T, r *sim.Result, l *ledger) {
	t.Helper()
	require.Zero(t, r.BusyKills)
	require.Zero(t, r.ForcedKills)
	require.Equal(t, r.Jobs.Submitted, r.Jobs.Completed)
	require.GreaterOrEqual(t, l.removed, roundsEach, "a telling without scale-ins shows nothing")
	require.Equal(t, r.Pools["linux"].Removals, l.removed)
	require.Zero(t, l.desired)
}

// TestC24_ABareDecrementTakesABusyOne: the clouds of these rounds are as dangerous
// as they say.
func TestC24_ABareDecrementTakesABusyOne(t *testing.T) {
	clouds(t, func(t *testing.T, cloud sim.NewCloud) {
		r := play(t, fmt.Sprintf(onePool, "max: 3")+`
duration: 5m
cloud: {linux: {initial: 3, victim: busy_first, protected: false}}
jobs: [{at: 1s, id: busy, tags: [docker], duration: 4m}]
events: [{at: 60s, set_desired: {pool: linux, to: 2}}]
`, cloud)
		require.Equal(t, 1, r.ForcedKills)
	})
}
