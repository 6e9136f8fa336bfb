package admission_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/router"
)

func policy(t require.TestingT, controllers ...admission.Controller) admission.Policy {
	p, err := admission.NewPolicy(controllers)
	require.NoError(t, err)
	return p
}

func names(list []admission.Controller) []string {
	out := []string{}
	for i := range list {
		out = append(out, list[i].Name)
	}
	return out
}

func TestChainIsInstanceThenGroupThenProject(t *testing.T) {
	p := policy(t,
		admission.Controller{Name: "p1", Scope: admission.Project, Projects: []int64{7}},
		admission.Controller{Name: "i1", Scope: admission.Instance},
		admission.Controller{Name: "g1", Scope: admission.Group, Groups: []int64{3}},
		admission.Controller{Name: "i0", Scope: admission.Instance},
		admission.Controller{Name: "dry", Scope: admission.Group, Groups: []int64{4}, DryRun: true},
		admission.Controller{Name: "other", Scope: admission.Project, Projects: []int64{8}},
	)
	job := spillway.Requirement{Project: 7, Groups: []int64{3, 4}}
	var got []string
	for _, s := range p.Chain(&job) {
		got = append(got, fmt.Sprintf("%s %v", s.Scope, names(s.Controllers)))
	}
	require.Equal(t, []string{"instance [i1 i0]", "group [g1 dry]", "project [p1]"}, got)
	require.Equal(t, []string{"i1", "i0", "g1", "p1"}, names(p.Approvers(&job)))
	require.Equal(t, []string{"dry"}, names(p.Observers(&job)))
	next, ok := p.Next(&job, []string{"i1", "g1"})
	require.True(t, ok)
	require.Equal(t, "i0", next.Name, "the first that is missing, in the order of the chain")
	_, ok = p.Next(&job, []string{"p1", "g1", "i0", "i1"})
	require.False(t, ok)
	require.Equal(t, admission.DefaultDeadline, next.Deadline)
	require.Equal(t, admission.DefaultBatch, next.Batch)
}

func TestDryRunAloneNeedsNobody(t *testing.T) {
	p := policy(t, admission.Controller{Name: "dry", Scope: admission.Instance, DryRun: true})
	require.False(t, p.Needs(&spillway.Requirement{}))
	c := router.ClassCount{Pending: 3}
	require.Equal(t, c, p.Sort(c))
	require.False(t, admission.Policy{}.Needs(&spillway.Requirement{}))
}

func TestSortingTwiceIsSortingOnce(t *testing.T) {
	p := policy(t, admission.Controller{Name: "a", Scope: admission.Instance})
	c := p.Sort(router.ClassCount{Pending: 7, Admitted: 2, Unadmitted: 1, Claimed: 4})
	require.Equal(t, []int{2, 2, 6, 4}, []int{c.Pending, c.Admitted, c.Unadmitted, c.Claimed})
	require.Equal(t, c, p.Sort(c))
}

func TestPolicyMistakes(t *testing.T) {
	ok := admission.Controller{Name: "a", Scope: admission.Instance}
	for name, change := range map[string]func(*admission.Controller){
		"can't name a controller":      func(c *admission.Controller) { c.Name = "A b" },
		"scope":                        func(c *admission.Controller) { c.Scope = "all" },
		"name groups if":               func(c *admission.Controller) { c.Scope = admission.Group },
		"name projects if":             func(c *admission.Controller) { c.Projects = []int64{1} },
		"a deadline of 1ms":            func(c *admission.Controller) { c.Deadline = time.Millisecond },
		"a deadline of 1h0m1s":         func(c *admission.Controller) { c.Deadline = time.Hour + time.Second },
		fmt.Sprint("a batch of ", 257): func(c *admission.Controller) { c.Batch = admission.MaxBatch + 1 },
		"a batch of -1":                func(c *admission.Controller) { c.Batch = -1 },
		"65 variables, at most 64":     func(c *admission.Controller) { c.Send.Env = make([]string, admission.MaxEnvNames+1) },
		"use 1 to 63":                  func(c *admission.Controller) { c.Name = strings.Repeat("a", admission.MaxNameBytes+1) },
		"at most 10000 groups or projects are al": func(c *admission.Controller) {
			c.Scope, c.Groups = admission.Group, make([]int64, admission.MaxScopeIDs+1)
		},
	} {
		c := ok
		change(&c)
		_, err := admission.NewPolicy([]admission.Controller{c})
		require.ErrorIs(t, err, spillway.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	_, err := admission.NewPolicy([]admission.Controller{ok, ok})
	require.ErrorContains(t, err, "two controllers are named")
	many := make([]admission.Controller, admission.MaxControllers+1)
	for i := range many {
		many[i] = ok
		many[i].Name = fmt.Sprintf("c%d", i)
	}
	_, err = admission.NewPolicy(many)
	require.ErrorContains(t, err, "33 controllers, at most 32")
	policy(t, many[:admission.MaxControllers]...)
}

func TestAbsent(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	p := policy(t,
		admission.Controller{Name: "a", Scope: admission.Instance, Deadline: time.Minute},
		admission.Controller{Name: "b", Scope: admission.Instance, Deadline: 10 * time.Second},
	)
	absent := func(after time.Duration, good map[string]time.Time) []string {
		var out []string
		for _, a := range p.Absent(start.Add(after), start, &spillway.Requirement{}, good) {
			out = append(out, a.Detail())
		}
		return out
	}
	require.Empty(t, absent(9*time.Second, nil), "a control plane that has just begun to look knows of no absence")
	require.Equal(t, []string{"admission controller b is not connected, or does not answer, for 10s"}, absent(10*time.Second, nil))
	require.Equal(t, []string{"admission controller a is not connected, or does not answer, for 2m0s"},
		absent(2*time.Minute, map[string]time.Time{"b": start.Add(115 * time.Second)}))
}

func TestSentencesAreSafeAndBounded(t *testing.T) {
	require.Equal(t, "no: ubuntu is not allowed", admission.Sentence("  no:\tubuntu\r\n is\x00 not\x1b allowed\xff "))
	rapid.Check(t, func(t *rapid.T) {
		s := admission.Sentence(rapid.String().Draw(t, "s") + strings.Repeat(rapid.StringN(1, 4, -1).Draw(t, "part"), rapid.IntRange(0, 2000).Draw(t, "n")))
		require.LessOrEqual(t, len(s), admission.MaxReasonBytes)
		require.NotContains(t, s, "\n")
		require.Equal(t, s, admission.Sentence(s))
	})
}
