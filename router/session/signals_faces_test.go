package session

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// The index answers as asking every pool about every class would.
func TestFacesAnswerAsAskingEveryPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tags := func(label string) []string {
			return rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 3).Draw(t, label)
		}
		pools := make(map[string]poolFace)
		for i := range rapid.IntRange(0, 6).Draw(t, "pools") {
			c := spillway.Capability{
				Tags: tags("has"), RunUntagged: rapid.Bool().Draw(t, "untagged"), Protected: rapid.Bool().Draw(t, "protected"),
			}.Normalize()
			pools[fmt.Sprint("p", i)] = poolFace{fingerprint: c.Fingerprint(), fingerprintText: c.Fingerprint().String(), capability: c}
		}
		var counts []router.ClassCount
		for range rapid.IntRange(0, 6).Draw(t, "classes") {
			r := spillway.Requirement{Tags: tags("needs"), Protected: rapid.Bool().Draw(t, "on protected ref")}
			counts = append(counts, router.ClassCount{Class: r.Class(), Requirement: r, Pending: rapid.IntRange(0, 3).Draw(t, "pending")})
		}
		x := newFaceIndex(pools, slices.Sorted(maps.Keys(pools)))

		jobs := x.eligibleJobs(counts)
		got := make(map[spillway.Fingerprint]int)
		for k, face := range x.distinct {
			require.NotContains(t, got, face.fingerprint)
			got[face.fingerprint] = jobs[k]
		}
		want := make(map[spillway.Fingerprint]int)
		for _, face := range pools {
			jobs := 0
			for i := range counts {
				if router.Match(&face.capability, &counts[i].Requirement).OK() {
					jobs += counts[i].Pending
				}
			}
			want[face.fingerprint] = jobs
		}
		require.Equal(t, want, got)

		for i := range counts {
			some := false
			for _, face := range pools {
				some = some || router.Match(&face.capability, &counts[i].Requirement).OK()
			}
			require.Equal(t, some, x.take(&counts[i].Requirement))
		}
	})
}
