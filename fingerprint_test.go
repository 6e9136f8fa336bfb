package spillway_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

func tagged(tags ...string) spillway.Capability { return spillway.Capability{Tags: tags} }

func TestC16_FingerprintOfTags(t *testing.T) {
	const nfc, nfd = "\u00e9", "e\u0301"
	tests := []struct {
		name  string
		a, b  []string
		equal bool
	}{
		{"order", []string{"a", "b"}, []string{"b", "a"}, true},
		{"duplicates", []string{"a", "b"}, []string{"a", "a", "b"}, true},
		{"case", []string{"Docker"}, []string{"docker"}, false},
		{"Unicode normalization", []string{nfc}, []string{nfd}, false},
		{"blanks", []string{" docker "}, []string{"docker"}, false},
		{"comma", []string{"a,b"}, []string{"a", "b"}, false},
		{"zero byte", []string{"a\x00b"}, []string{"a", "b"}, false},
		{"length that looks like a tag", []string{"a\x01b"}, []string{"a", "b"}, false},
		{"concatenation", []string{"ab", "c"}, []string{"a", "bc"}, false},
		{"variable", []string{"$VAR"}, []string{"VAR"}, false},
		{"invalid UTF-8", []string{"\xff"}, []string{"\xfe"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.equal, tagged(tt.a...).Fingerprint() == tagged(tt.b...).Fingerprint())
			require.Equal(t, tt.equal, spillway.Requirement{Tags: tt.a}.Class() == spillway.Requirement{Tags: tt.b}.Class())
		})
	}
}

// What is hashed is on disk at every user: a change of the encoding must come
// with a new version string, and then with new values here.
func TestFingerprintIsStable(t *testing.T) {
	c := spillway.Capability{
		Tags: []string{"linux", "docker"}, RunUntagged: true, Protected: true,
		Type: spillway.GroupType, Groups: []int64{7, 3},
		Resources: spillway.Resources{MilliCPU: 2000, MemoryMiB: 4096, Features: []string{"docker"}},
	}
	r := spillway.Requirement{
		Tags: []string{"linux"}, Protected: true, Project: 12, Groups: []int64{3},
		Resources: spillway.Resources{MilliCPU: 1000},
	}
	require.Equal(t, "10844494c9470e4e144e141df148f75319b7d9cf92a956c6916c13aa13bf501c", c.Fingerprint().String())
	require.Equal(t, spillway.JobClass("7ba90e1b4b0aa3fee32ab9b7e5e36646"), r.Class())
}

func TestFingerprintText(t *testing.T) {
	fp := tagged("a").Fingerprint()
	require.Equal(t, fp.String()[:12], fp.Short())
	require.False(t, fp.IsZero())
	require.True(t, spillway.Fingerprint{}.IsZero())

	b, err := json.Marshal(map[spillway.Fingerprint]int{fp: 1})
	require.NoError(t, err)
	var back map[spillway.Fingerprint]int
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, map[spillway.Fingerprint]int{fp: 1}, back)

	for _, bad := range []string{"", fp.Short(), fp.String() + "00", strings.Repeat("g", 64)} {
		_, err := spillway.ParseFingerprint(bad)
		require.ErrorIs(t, err, spillway.ErrInvalid, "%q", bad)
		require.ErrorIs(t, new(spillway.Fingerprint).UnmarshalText([]byte(bad)), spillway.ErrInvalid)
	}
}

// The values drawn are few and close to each other, so that equal ones come up.
var (
	tagValues     = []string{"a", "b", "ab", "A", "a,b", "a\x00b", "\u00e9", "e\u0301"}
	featureValues = []string{"docker", "gpu"}
)

func drawSet[T comparable](t *rapid.T, name string, values []T, least int) []T {
	return rapid.SliceOfN(rapid.SampledFrom(values), least, 4).Draw(t, name)
}

func drawResources(t *rapid.T) spillway.Resources {
	return spillway.Resources{
		MilliCPU:  rapid.SampledFrom([]int64{0, 1000, 2000}).Draw(t, "cpu"),
		MemoryMiB: rapid.SampledFrom([]int64{0, 1024}).Draw(t, "memory"),
		Features:  drawSet(t, "features", featureValues, 0),
	}
}

func drawCapability(t *rapid.T) spillway.Capability {
	c := spillway.Capability{
		Tags:        drawSet(t, "tags", tagValues, 0),
		RunUntagged: rapid.Bool().Draw(t, "untagged"),
		Protected:   rapid.Bool().Draw(t, "protected"),
		Origin:      rapid.SampledFrom([]string{"", "https://a.example", "https://b.example"}).Draw(t, "origin"),
		Type:        rapid.SampledFrom([]spillway.RunnerType{"", spillway.InstanceType, spillway.GroupType, spillway.ProjectType}).Draw(t, "type"),
		Resources:   drawResources(t),
	}
	switch c.Type {
	case spillway.GroupType:
		c.Groups = drawSet(t, "groups", []int64{1, 2, 3}, 1)
	case spillway.ProjectType:
		c.Projects = drawSet(t, "projects", []int64{1, 2, 3}, 1)
	case spillway.InstanceType, "":
	}
	c.RunUntagged = c.RunUntagged || len(c.Tags) == 0
	require.NoError(t, c.Validate())
	return c
}

// variant returns c itself in another spelling, or c with one thing changed, or
// another capability altogether.
func variant(t *rapid.T, c spillway.Capability) spillway.Capability {
	switch rapid.IntRange(0, 3).Draw(t, "variant") {
	case 0:
		c.Tags = append(slices.Clone(c.Tags), c.Tags...)
		slices.Reverse(c.Tags)
		c.Groups = append(slices.Clone(c.Groups), c.Groups...)
		c.Projects = append(slices.Clone(c.Projects), c.Projects...)
		return c
	case 1:
		c.Protected = !c.Protected
		return c
	case 2:
		c.Resources = drawResources(t)
		return c
	default:
		return drawCapability(t)
	}
}

func TestFingerprintEqualExactlyWhenTheMeaningIs(t *testing.T) {
	equal, different := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		a := drawCapability(t)
		b := variant(t, a)
		same := reflect.DeepEqual(a.Normalize(), b.Normalize())
		require.Equal(t, same, a.Fingerprint() == b.Fingerprint(), "%v\n%v", a, b)
		if same {
			equal++
		} else {
			different++
		}
	})
	require.Positive(t, equal, "no equal pair was drawn: the property was not tested")
	require.Positive(t, different)
}

// Equal fingerprint ⇔ equal answer for every job.
func TestFingerprintEqualExactlyWhenEveryJobGetsTheSameAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawCapability(t)
		b := variant(t, a)
		told := tellApart(t, &a, &b)
		if a.Fingerprint() == b.Fingerprint() {
			require.Nil(t, told, "equal fingerprints, but different answers for %v", told)
		} else {
			require.NotNil(t, told, "no job tells %v from %v, but their fingerprints differ", a, b)
		}
	})
}

// tellApart returns a job that one of a and b takes and the other doesn't, nil if
// there is none among those that ask for one thing of either.
func tellApart(t *rapid.T, a, b *spillway.Capability) *spillway.Requirement {
	tagSets := [][]string{nil}
	for _, tag := range slices.Concat(a.Tags, b.Tags) {
		tagSets = append(tagSets, []string{tag})
	}
	scopes := []spillway.Requirement{{}}
	for _, g := range slices.Concat(a.Groups, b.Groups) {
		scopes = append(scopes, spillway.Requirement{Project: 1_000_000, Groups: []int64{g}})
	}
	for _, p := range slices.Concat(a.Projects, b.Projects) {
		scopes = append(scopes, spillway.Requirement{Project: p})
	}
	resources := []spillway.Resources{{}}
	for _, has := range []spillway.Resources{a.Resources, b.Resources} {
		resources = append(resources, spillway.Resources{MilliCPU: has.MilliCPU}, spillway.Resources{MemoryMiB: has.MemoryMiB})
		for _, f := range has.Features {
			resources = append(resources, spillway.Resources{Features: []string{f}})
		}
	}
	for _, r := range scopes {
		for _, r.Tags = range tagSets {
			for _, r.Resources = range resources {
				for _, r.Protected = range []bool{false, true} {
					for _, r.Origin = range []string{a.Origin, b.Origin} {
						require.NoError(t, r.Validate())
						if router.Match(a, &r).OK() != router.Match(b, &r).OK() {
							return &r
						}
					}
				}
			}
		}
	}
	return nil
}

func TestClassEqualExactlyWhenTheRequirementIs(t *testing.T) {
	draw := func(t *rapid.T) spillway.Requirement {
		return spillway.Requirement{
			Tags:      drawSet(t, "tags", tagValues[:3], 0),
			Protected: rapid.Bool().Draw(t, "protected"),
			Project:   rapid.Int64Range(0, 2).Draw(t, "project"),
			Groups:    drawSet(t, "groups", []int64{1, 2}, 0),
			Resources: drawResources(t),
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a := draw(t)
		b := a
		if rapid.Bool().Draw(t, "other") {
			b = draw(t)
		} else {
			b.Tags = append(slices.Clone(a.Tags), a.Tags...)
		}
		require.Equal(t, reflect.DeepEqual(a.Normalize(), b.Normalize()), a.Class() == b.Class())
		require.Len(t, a.Class(), 32)
	})
}

// FuzzFingerprint looks for two different sets of tags that hash alike, and for
// spellings of one set that don't.
func FuzzFingerprint(f *testing.F) {
	for _, s := range [][3]string{
		{"a", "b", ","},
		{"a", "b", "\x00"},
		{"a", "b", "\x01"},
		{"", "", ""},
		{"a", "a", ""},
		{"\u00e9", "e\u0301", ""},
		{"\xff", "\xfe", "\x01"},
		{strings.Repeat("x", 127), "y", "\x01"},
		{strings.Repeat("x", 128), "y", "\x80\x01"},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, a, b, separator string) {
		both := tagged(a, b).Fingerprint()
		require.Equal(t, both, tagged(b, a, a, b).Fingerprint())
		joined := tagged(a + separator + b)
		require.Equal(t, reflect.DeepEqual(joined.Normalize(), tagged(a, b).Normalize()), joined.Fingerprint() == both)
		require.NotEqual(t, both, tagged(a, b, a+b+"x").Fingerprint())

		asFeatures := spillway.Capability{Resources: spillway.Resources{Features: []string{a, b}}}
		require.NotEqual(t, both, asFeatures.Fingerprint(), "a tag is no feature")

		back, err := spillway.ParseFingerprint(both.String())
		require.NoError(t, err)
		require.Equal(t, both, back)
	})
}

func BenchmarkFingerprint(b *testing.B) {
	c := spillway.Capability{Tags: names(20), RunUntagged: true}.Normalize()
	b.ReportAllocs()
	for b.Loop() {
		c.Fingerprint()
	}
}
