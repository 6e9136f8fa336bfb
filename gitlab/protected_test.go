package gitlab

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRefMatches(t *testing.T) {
	for _, tt := range []struct {
		rule, ref string
		want      bool
	}{
		{"main", "main", true},
		{"main", "Main", false},
		{"main", "main2", false},
		{"*", "anything/at-all", true},
		{"*", "", true},
		{"release/*", "release/1", true},
		{"release/*", "release/", true},
		{"release/*", "rel/1", false},
		{"*-stable", "1-2-stable", true},
		{"*-stable", "1-2-stable2", false},
		{"v*.*", "v1.2", true},
		{"v*.*", "v1", false},
		{"a*a", "a", false},
		{"a*b*c", "axbyc", true},
		{"a*b*c", "acb", false},
		{"v1.0", "v1x0", false},
		{"", "", true},
		{"", "x", false},
	} {
		require.Equal(t, tt.want, refMatches(tt.rule, tt.ref), "%q %q", tt.rule, tt.ref)
	}
}

func TestRefMatchesAsAPatternDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.StringMatching(`[ab/.*]{0,8}`).Draw(t, "rule")
		ref := rapid.StringMatching(`[ab/.]{0,8}`).Draw(t, "ref")
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(rule), `\*`, ".*") + "$"
		if refMatches(rule, ref) != regexp.MustCompile(pattern).MatchString(ref) {
			t.Fatalf("%q %q", rule, ref)
		}
	})
}

func protectedAPI(jobs []object) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/graphql", graphAPI(func(graphQuestion) any {
		return object{"jobs": object{"nodes": jobs, "pageInfo": object{"hasNextPage": false}}}
	}))
	mux.HandleFunc("/api/v4/projects/7/protected_branches", func(w http.ResponseWriter, r *http.Request) {
		restList(w, r, 101, func(id int64) any {
			if id == 1 { // on the second page
				return object{"name": "main"}
			}
			return object{"name": "other"}
		})
	})
	mux.HandleFunc("/api/v4/projects/7/protected_tags", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, []object{{"name": "v*"}})
	})
	return mux
}

func TestProtectedJobs(t *testing.T) {
	job := func(id int64, ref string, tag bool, status string) object {
		j := graphJobOf(id, status)
		j["refName"], j["createdByTag"] = ref, tag
		return j
	}
	gone := job(6, "main", false, "pending")
	gone["project"] = object{"id": "gid://gitlab/Project/8", "fullPath": "gone"}
	jobs := []object{
		job(1, "main", false, "pending"), job(2, "v1", true, "pending"), job(3, "main", true, "pending"), job(4, "feature", false, "pending"),
		job(5, "main", false, "running"), gone,
	}
	s := newStage(t, protectedAPI(jobs), func(o *Options) { o.ProtectedRefs = true })
	var protected []int64
	for range 2 {
		protected = nil
		for _, j := range jobsOf(t, s, instance) {
			if j.Protected {
				protected = append(protected, j.ID)
			}
		}
		require.Equal(t, []int64{1, 2}, protected)
	}
	require.Equal(t, 3, s.count("GET /api/v4/projects/7/"), "the rules are remembered")
	s.pass(protectionAge)
	jobsOf(t, s, instance)
	require.Equal(t, 6, s.count("GET /api/v4/projects/7/"), "and not for ever")

	off := newStage(t, protectedAPI(jobs))
	jobsOf(t, off, instance)
	require.Zero(t, off.count("GET"), "who has no protected runner pays nothing")
}

func TestProtectionThatMayNotBeRead(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/graphql", graphAPI(func(graphQuestion) any {
		return object{"jobs": graphList(1, nil, func(id int64) object { return graphJobOf(id, "pending") })}
	}))
	mux.HandleFunc("/", answering(403, asJSON, `{"message":"403 Forbidden"}`))
	s := newStage(t, mux, func(o *Options) { o.ProtectedRefs = true })
	_, err := s.list(context.Background(), instance, StatusPending)
	require.ErrorIs(t, err, ErrForbidden)
	require.ErrorContains(t, err, "protected branches")
}
