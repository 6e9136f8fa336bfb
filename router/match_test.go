package router_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

func TestC15_TagsUntaggedProtected(t *testing.T) {
	tests := []struct {
		name   string
		job    spillway.Requirement
		runner spillway.Capability
		want   router.Predicate
	}{
		{"subset", tags("docker", "shell"), runner("docker", "shell", "gpu"), router.PredicateNone},
		{"superset", tags("docker", "shell", "gpu"), runner("docker", "shell"), router.PredicateTags},
		{"equal", tags("docker"), runner("docker"), router.PredicateNone},
		{"one of two is not enough", tags("docker", "gpu"), runner("docker", "shell"), router.PredicateTags},
		{"untagged job, tagged runner", tags(), runner("docker"), router.PredicateUntagged},
		{"untagged job, runner that takes them", tags(), untagged(runner("docker")), router.PredicateNone},
		{"tagged job, runner without tags", tags("docker"), untagged(runner()), router.PredicateTags},
		{"untagged job, runner without tags", tags(), untagged(runner()), router.PredicateNone},
		{"other tag", tags("hello"), runner("docker"), router.PredicateTags},
		{"protected runner, unprotected job", tags("docker"), protected(runner("docker")), router.PredicateProtected},
		{"protected runner, protected job", protectedJob(tags("docker")), protected(runner("docker")), router.PredicateNone},
		{"unprotected runner, protected job", protectedJob(tags("docker")), runner("docker"), router.PredicateNone},
		{"protected is looked at before tags", tags(), protected(runner("docker")), router.PredicateProtected},
		{"another GitLab's job", of("https://a.example", tags("docker")), ofGitLab("https://b.example", runner("docker")), router.PredicateOrigin},
		{"our own queue's job, GitLab's runner", tags("docker"), ofGitLab("https://a.example", runner("docker")), router.PredicateOrigin},
		{"GitLab's job, runner of our own queue", of("https://a.example", tags("docker")), runner("docker"), router.PredicateOrigin},
		{"the same GitLab's job", of("https://a.example", tags("docker")), ofGitLab("https://a.example", runner("docker")), router.PredicateNone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requireVerdict(t, tt.want, &tt.runner, &tt.job)
		})
	}
	require.ErrorIs(t, spillway.Capability{}.Validate(), spillway.ErrInvalid, "a runner that can take nothing is a mistake of the config")
}

// requireVerdict checks every form of the answer.
func requireVerdict(t *testing.T, want router.Predicate, c *spillway.Capability, r *spillway.Requirement) {
	t.Helper()
	v := router.Match(c, r)
	require.Equal(t, router.Verdict{Predicate: want}, v)
	require.Equal(t, want == router.PredicateNone, v.OK())
	explained := router.Explain(c, r)
	require.Equal(t, want, explained.Predicate)
	require.Equal(t, want == router.PredicateNone, explained.Detail == "", "a refusal, and only that, has a sentence: %q", explained.Detail)
	ok, predicate := router.Fits(c, r)
	require.Equal(t, v.OK(), ok)
	require.Equal(t, string(want), predicate)
}

func tags(list ...string) spillway.Requirement { return spillway.Requirement{Tags: list} }

func runner(list ...string) spillway.Capability { return spillway.Capability{Tags: list} }

func untagged(c spillway.Capability) spillway.Capability  { c.RunUntagged = true; return c }
func protected(c spillway.Capability) spillway.Capability { c.Protected = true; return c }

func of(origin string, r spillway.Requirement) spillway.Requirement  { r.Origin = origin; return r }
func ofGitLab(url string, c spillway.Capability) spillway.Capability { c.Origin = url; return c }

func protectedJob(r spillway.Requirement) spillway.Requirement { r.Protected = true; return r }

func TestMatchScope(t *testing.T) {
	group := untagged(spillway.Capability{Type: spillway.GroupType, Groups: []int64{7, 9}})
	project := untagged(spillway.Capability{Type: spillway.ProjectType, Projects: []int64{12, 30}})
	tests := []struct {
		name   string
		runner spillway.Capability
		job    spillway.Requirement
		want   router.Predicate
	}{
		{"instance, any project", untagged(runner()), spillway.Requirement{Project: 5}, router.PredicateNone},
		{"instance, no project", untagged(runner()), spillway.Requirement{}, router.PredicateNone},
		{"group, parent", group, spillway.Requirement{Project: 5, Groups: []int64{7}}, router.PredicateNone},
		{"group, ancestor", group, spillway.Requirement{Project: 5, Groups: []int64{1, 2, 9}}, router.PredicateNone},
		{"group, other groups", group, spillway.Requirement{Project: 7, Groups: []int64{1, 8}}, router.PredicateScope},
		{"group, no groups", group, spillway.Requirement{Project: 7}, router.PredicateScope},
		{"project, its own", project, spillway.Requirement{Project: 30}, router.PredicateNone},
		{"project, another", project, spillway.Requirement{Project: 13, Groups: []int64{12}}, router.PredicateScope},
		{"project, none", project, spillway.Requirement{}, router.PredicateScope},
		{"project 0 is no project", spillway.Capability{RunUntagged: true, Type: spillway.ProjectType, Projects: []int64{0}}, spillway.Requirement{}, router.PredicateScope},
		{"unknown type", spillway.Capability{RunUntagged: true, Type: "shared"}, spillway.Requirement{Project: 5}, router.PredicateScope},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requireVerdict(t, tt.want, &tt.runner, &tt.job)
		})
	}
}

func TestMatchResources(t *testing.T) {
	has := spillway.Resources{MilliCPU: 2000, MemoryMiB: 4096, Features: []string{"docker", "gpu"}}
	tests := []struct {
		name       string
		has, wants spillway.Resources
		want       router.Predicate
	}{
		{"nothing asked for", has, spillway.Resources{}, router.PredicateNone},
		{"all of it", has, has, router.PredicateNone},
		{"too much CPU", has, spillway.Resources{MilliCPU: 2001}, router.PredicateResources},
		{"too much memory", has, spillway.Resources{MemoryMiB: 4097}, router.PredicateResources},
		{"missing feature", has, spillway.Resources{Features: []string{"docker", "kvm"}}, router.PredicateResources},
		{"features are case-sensitive", has, spillway.Resources{Features: []string{"Docker"}}, router.PredicateResources},
		{"nothing declared, nothing asked for", spillway.Resources{}, spillway.Resources{}, router.PredicateNone},
		{"nothing declared", spillway.Resources{}, spillway.Resources{MilliCPU: 1}, router.PredicateResources},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requireVerdict(t, tt.want,
				&spillway.Capability{RunUntagged: true, Resources: tt.has},
				&spillway.Requirement{Resources: tt.wants})
		})
	}
}

func TestC16_ExplainHints(t *testing.T) {
	const nfc, nfd = "caf\u00e9", "cafe\u0301"
	tests := []struct {
		name     string
		job      spillway.Requirement
		runner   spillway.Capability
		contains string
	}{
		{"case", tags("Docker"), runner("docker"), `"Docker" ("docker" differs only in case)`},
		{"normalization", tags(nfd), runner(nfc), `"cafe\u0301" ("caf\u00e9" differs only in Unicode normalization)`},
		{"both", tags("CAFE\u0301"), runner(nfc), "differs only in case and Unicode normalization"},
		{"blanks", tags(" docker "), runner("docker"), "differs only in surrounding blanks"},
		{"variable", tags("$RUNNER_TAG"), runner("docker"), "a variable that was not expanded?"},
		{"list in one tag", tags("vm,openstack"), runner("openstack", "vm"), `"vm,openstack" (one name, not a list)`},
		{"no hint", tags("gpu"), runner("docker"), `lacks the tag "gpu"`},
		{"some of many", tags("a", "b", "c", "d", "e"), runner("x"), `"a", "b", "c" and 2 more`},
		{"duplicates among the others", tags("a", "b", "c", "d", "d", "d", "e"), runner("x"), `"a", "b", "c" and 2 more`},
		{"a duplicate is one tag", tags("a", "a", "b"), runner("x"), `lacks the tag "a", "b"`},
		{
			"another cell's job", of(spillway.CellOrigin, tags("a")), ofGitLab(spillway.CellOrigin, runner("a")),
			"handed out by another cell, and the runner is another cell's, which takes jobs of Spillway's own queue only",
		},
		{
			"GitLab's job in another cell", of("https://gitlab", tags("a")), ofGitLab(spillway.CellOrigin, runner("a")),
			"handed out by https://gitlab, and the runner is another cell's, which takes jobs of Spillway's own queue only",
		},
		{"our own job", of("", tags("a")), ofGitLab("https://gitlab", runner("a")), "handed out by Spillway's own queue, and the runner takes jobs of https://gitlab"},
		{
			"other groups",
			spillway.Requirement{Groups: []int64{1, 2}},
			spillway.Capability{RunUntagged: true, Type: spillway.GroupType, Groups: []int64{7}},
			"none of the 1 groups that the runner serves is among the 2 that the job's project is in",
		},
		{
			"no groups",
			spillway.Requirement{Project: 5},
			spillway.Capability{RunUntagged: true, Type: spillway.GroupType, Groups: []int64{7}},
			"the runner serves certain groups, and the job names none",
		},
		{"invalid UTF-8", tags("\xff"), runner("x"), `"\xff"`},
		{
			"feature",
			spillway.Requirement{Resources: spillway.Resources{Features: []string{"GPU"}}},
			spillway.Capability{RunUntagged: true, Resources: spillway.Resources{Features: []string{"gpu"}}},
			`lacks the feature "GPU" ("gpu" differs only in case)`,
		},
		{
			"resources",
			spillway.Requirement{Resources: spillway.Resources{MilliCPU: 4000, MemoryMiB: 2}},
			spillway.Capability{RunUntagged: true, Resources: spillway.Resources{MilliCPU: 2000, MemoryMiB: 1}},
			"asks for 4000 thousandths of a CPU, the runner offers 2000; the job asks for 2 MiB of memory, the runner offers 1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := router.Explain(&tt.runner, &tt.job)
			require.False(t, v.OK(), "what differs in bytes differs")
			require.Contains(t, v.Detail, tt.contains)
		})
	}
}

func TestC16_ExplanationStaysShort(t *testing.T) {
	r := tags(slices.Repeat([]string{strings.Repeat("\xff", spillway.MaxTagBytes)}, 1)...)
	for i := range spillway.MaxJobTags - 2 {
		r.Tags = append(r.Tags, strings.Repeat("\xff", spillway.MaxTagBytes-1)+string(rune('!'+i)))
	}
	require.NoError(t, r.Validate())
	c := runner("docker")
	require.Less(t, len(router.Explain(&c, &r).Detail), 4<<10)
}

// The order and the number of the elements of a set have no meaning, and the
// rule is the one of five lines.
func TestMatchAgreesWithTheRule(t *testing.T) {
	matched := 0
	rapid.Check(t, func(t *rapid.T) {
		c, r := drawRunner(t), drawJob(t)
		if rapid.Bool().Draw(t, "as if made for the runner") { // by chance they hardly ever fit
			r = spillway.Requirement{Tags: c.Tags, Protected: true, Groups: c.Groups, Resources: c.Resources, Origin: c.Origin}
			if len(c.Projects) > 0 {
				r.Project = c.Projects[0]
			}
		}
		got := router.Match(&c, &r)
		require.Equal(t, oracle(c, r), got.OK(), "%v %v", c, r)
		n, m := c.Normalize(), r.Normalize()
		require.Equal(t, got, router.Match(&n, &m))
		if got.OK() {
			matched++
		}
	})
	require.Positive(t, matched)
}

func oracle(c spillway.Capability, r spillway.Requirement) bool {
	in := func(a, b []string) bool {
		return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
	}
	scope := c.Type == spillway.InstanceType || slices.Contains(c.Projects, r.Project) ||
		slices.ContainsFunc(r.Groups, func(g int64) bool { return slices.Contains(c.Groups, g) })
	return c.Origin == r.Origin && (!c.Protected || r.Protected) && (c.RunUntagged || len(r.Tags) > 0) && in(r.Tags, c.Tags) && scope &&
		c.Resources.MilliCPU >= r.Resources.MilliCPU && c.Resources.MemoryMiB >= r.Resources.MemoryMiB && in(r.Resources.Features, c.Resources.Features)
}

func drawRunner(t *rapid.T) spillway.Capability {
	c := spillway.Capability{
		Tags:        drawNames(t, "runner tags"),
		RunUntagged: rapid.Bool().Draw(t, "untagged"),
		Protected:   rapid.Bool().Draw(t, "protected runner"),
		Resources:   drawResources(t, "offer"),
		Origin:      drawOrigin(t, "the runner's origin"),
	}
	c.Type = rapid.SampledFrom([]spillway.RunnerType{spillway.InstanceType, spillway.GroupType, spillway.ProjectType}).Draw(t, "type")
	switch c.Type {
	case spillway.GroupType:
		c.Groups = drawIDs(t, "groups")
	case spillway.ProjectType:
		c.Projects = drawIDs(t, "projects")
	case spillway.InstanceType:
	}
	return c
}

func drawJob(t *rapid.T) spillway.Requirement {
	return spillway.Requirement{
		Tags:      drawNames(t, "job tags"),
		Protected: rapid.Bool().Draw(t, "protected job"),
		Project:   rapid.Int64Range(1, 4).Draw(t, "project"),
		Groups:    drawIDs(t, "ancestors"),
		Resources: drawResources(t, "request"),
		Origin:    drawOrigin(t, "the job's origin"),
	}
}

func drawOrigin(t *rapid.T, label string) string {
	return rapid.SampledFrom([]string{"", "", "https://gitlab.example"}).Draw(t, label)
}

func drawNames(t *rapid.T, label string) []string {
	return rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "A"}), 0, 5).Draw(t, label)
}

func drawIDs(t *rapid.T, label string) []int64 {
	return rapid.SliceOfN(rapid.Int64Range(1, 4), 1, 4).Draw(t, label)
}

func drawResources(t *rapid.T, label string) spillway.Resources {
	return spillway.Resources{
		MilliCPU:  rapid.Int64Range(0, 1).Draw(t, label+" CPU"),
		MemoryMiB: rapid.Int64Range(0, 1).Draw(t, label+" memory"),
		Features:  rapid.SliceOfN(rapid.SampledFrom([]string{"docker", "gpu"}), 0, 2).Draw(t, label+" features"),
	}
}

func TestMatchOfNormalInputsAllocatesNothing(t *testing.T) {
	c := spillway.Capability{
		Tags: []string{"docker", "linux", "shell"}, Type: spillway.GroupType, Groups: []int64{3, 7},
		Resources: spillway.Resources{Features: []string{"docker", "gpu"}},
	}
	good := spillway.Requirement{
		Tags: []string{"docker", "shell"}, Project: 1, Groups: []int64{7}, Resources: spillway.Resources{Features: []string{"gpu"}},
	}
	bad := tags("windows")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if !router.Match(&c, &good).OK() || router.Match(&c, &bad).OK() {
			t.Error("wrong verdict")
		}
	}))
}
