package jobrouter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
)

func TestOneSetOfFeaturesCoversAnother(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	draw := func(t *rapid.T, label string) map[string]bool {
		return rapid.MapOf(rapid.SampledFrom(names), rapid.Bool()).Draw(t, label)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		want := true
		for name, on := range b {
			want = want && (!on || a[name])
		}
		fa, fb := readFeatures(mustFeatures(a)), readFeatures(mustFeatures(b))
		require.Equal(t, want, fa.covers(fb))
		require.True(t, fa.covers(readFeatures(nil)))
	})
}

func TestFeaturesThatCannotBeReadDeclareNothing(t *testing.T) {
	for _, raw := range []string{"", "null", "7", `{"a":"true"}`, `{"a":1}`, `{`} {
		require.Empty(t, readFeatures(json.RawMessage(raw)).names, raw)
	}
}

func TestOneCopyOfEachSetIsKept(t *testing.T) {
	var s featureSets
	a := s.of(json.RawMessage(`{"x":true}`))
	require.Same(t, a, s.of(json.RawMessage(`{"x":true}`)))
	for i := range 2 * maxFeatureSets {
		raw := fmt.Sprintf(`{"x%d":true}`, i)
		require.Equal(t, []string{fmt.Sprintf("x%d", i)}, s.of(json.RawMessage(raw)).names)
	}
	require.Len(t, s.mu.byText, maxFeatureSets)
}

func TestRankIsAnOrder(t *testing.T) {
	draw := func(t *rapid.T, label string) *candidate {
		return &candidate{
			priority: rapid.IntRange(0, 2).Draw(t, label+" priority"),
			twoPhase: rapid.Bool().Draw(t, label+" two-phase"),
			usedAt:   epoch.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, label+" used")) * time.Second),
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := draw(t, "a"), draw(t, "b"), draw(t, "c")
		for _, f := range []func(a, b *candidate) int{rank, rankToAsk} {
			require.Equal(t, f(a, b), -f(b, a))
			if f(a, b) < 0 && f(b, c) < 0 {
				require.Negative(t, f(a, c))
			}
		}
		if a.priority < b.priority {
			require.Negative(t, rank(a, b), "the priority decides first")
		}
		if a.priority == b.priority && a.usedAt.After(b.usedAt) {
			require.Negative(t, rank(a, b), "then who was used last, so that the others idle out")
		}
		if a.twoPhase && !b.twoPhase {
			require.Negative(t, rankToAsk(a, b))
		}
	})
}

func TestWhoSuits(t *testing.T) {
	all, some := readFeatures(mustFeatures(runnerFeatures())), readFeatures(json.RawMessage(`{"two_phase_job_commit":true}`))
	c := candidate{twoPhase: true, features: some, barredUntil: epoch}
	require.True(t, c.suits(wish{twoPhase: true}, epoch))
	require.False(t, c.suits(wish{twoPhase: true}, epoch.Add(-1)), "barred")
	require.False(t, c.suits(wish{twoPhase: false}, epoch))
	require.False(t, c.suits(wish{twoPhase: true, features: all}, epoch))
	require.True(t, c.suits(wish{twoPhase: true, features: some}, epoch))
}

func TestAQuestionKeepsTheRunnersWords(t *testing.T) {
	body := requestBody("m1", "first", runnerFeatures())
	same, err := withLastUpdate(body, "")
	require.NoError(t, err)
	require.Equal(t, body, same)

	got, err := withLastUpdate(body, `v"1`)
	require.NoError(t, err)
	var want map[string]any
	require.NoError(t, json.Unmarshal(body, &want))
	want["last_update"] = `v"1`
	text, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, string(text), string(got))

	_, err = withLastUpdate([]byte(`[]`), "v")
	require.Error(t, err)
}

func TestAQuestionForNobody(t *testing.T) {
	for name, last := range map[string][]byte{"nobody has asked": nil, "rubbish": []byte("[1]"), "no info": []byte(`{"token":"other"}`)} {
		body, err := forNobody(last, testToken, "")
		require.NoError(t, err, name)
		r, err := route.ParseRequest(body)
		require.NoError(t, err)
		require.Equal(t, testToken, r.Token)
		require.Equal(t, ourSystem, r.System)
		require.True(t, r.TwoPhase)
		require.Equal(t, everyRunner, readFeatures(r.Features).names)
	}
	body, err := forNobody(requestBody("m1", "first", legacyFeatures()), testToken, "v9")
	require.NoError(t, err)
	r, err := route.ParseRequest(body)
	require.NoError(t, err)
	require.Equal(t, ourSystem, r.System)
	require.Equal(t, "v9", r.LastUpdate)
	require.Equal(t, "19.4.0", r.Version)
	require.True(t, r.TwoPhase, "whatever the other machine can do")
	require.Equal(t, everyRunner, readFeatures(r.Features).names)
	require.NotContains(t, string(body), "session", "that is the other machine's terminal")
	require.NotContains(t, string(body), "i-m1")
}

func TestWhatAnyRunnerCanDoIsSorted(t *testing.T) {
	require.True(t, slices.IsSorted(everyRunner))
}

func TestUpkeepOfAKeptJob(t *testing.T) {
	keepFor := time.Hour
	tests := []struct {
		name string
		j    job
		at   time.Duration
		want upkeep
	}{
		{"fresh", job{}, renewEvery - 1, rest},
		{"due", job{}, renewEvery, renew},
		{"under way", job{renewing: true}, renewEvery, rest},
		{"the last moment", job{}, lastChance - 1, renew},
		{"too late", job{}, lastChance, leave},
		{"acknowledged and old", job{foundAt: epoch.Add(-keepFor + renewEvery + 1)}, renewEvery, renew},
		{"old", job{foundAt: epoch.Add(-keepFor + renewEvery)}, renewEvery, leave},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := tt.j
			if j.foundAt.IsZero() {
				j.foundAt = epoch
			}
			j.wish.twoPhase = true
			j.acknowledged(epoch)
			do, why := j.upkeepAt(epoch.Add(tt.at), keepFor)
			require.Equal(t, tt.want, do)
			require.Equal(t, do == leave, why != "")
		})
	}
	legacy := job{foundAt: epoch}
	do, _ := legacy.upkeepAt(epoch.Add(legacyFor-1), keepFor)
	require.Equal(t, rest, do)
	do, _ = legacy.upkeepAt(epoch.Add(legacyFor), keepFor)
	require.Equal(t, leave, do)
}

func TestABookingEndsByItself(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		time.Minute:                  time.Minute,
		0:                            spillway.MaxJobTimeout,
		spillway.MaxJobTimeout + 1:   spillway.MaxJobTimeout,
		spillway.MaxJobTimeout - 100: spillway.MaxJobTimeout - 100,
	} {
		j := job{payload: gitlab.Payload{RunnerInfo: gitlab.RunnerInfo{Timeout: timeout}}}
		require.Equal(t, want+jobMargin, j.until(epoch).Sub(epoch))
	}
}

// What is held counts as demand for the pools of its token, and must match them.
func TestTheRequirementOfAHeldJobMatchesItsPools(t *testing.T) {
	many := make([]string, spillway.MaxRunnerTags)
	for i := range many {
		many[i] = fmt.Sprintf("t%03d", i)
	}
	for name, c := range map[string]spillway.Capability{
		"tags":      {Tags: []string{"a", "b"}},
		"many tags": {Tags: many},
		"untagged":  {RunUntagged: true},
		"protected": {Tags: []string{"a"}, Protected: true},
		"group":     {Tags: []string{"a"}, Type: spillway.GroupType, Groups: []int64{4, 5}},
		"project":   {Tags: []string{"a"}, Type: spillway.ProjectType, Projects: []int64{7}},
		"origin":    {Tags: []string{"a"}, Origin: "https://gitlab.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			r := HeldJob{Project: 7, Pools: []spillway.Pool{{Name: "p", Capability: c}}}.Requirement()
			require.NoError(t, r.Validate())
			verdict := router.Match(&c, &r)
			require.True(t, verdict.OK(), "%+v", verdict)
		})
	}
	require.Zero(t, HeldJob{}.Requirement().Tags)
}

func TestOptionsAreChecked(t *testing.T) {
	good := Options{Leases: newFakeLeases(), Book: newFakeBook(), GitLab: newFakeGitLab(), Contacts: &fakeContacts{}, Tokens: testTokens(), Replica: "a"}
	require.NoError(t, good.Validate())
	for problem, spoil := range map[string]func(*Options){
		"needs leases":            func(o *Options) { o.Leases = nil },
		"replica name":            func(o *Options) { o.Replica = "a@b" },
		"advertised address":      func(o *Options) { o.Advertise = "nowhere" },
		"long poll":               func(o *Options) { o.LongPoll = time.Millisecond },
		"questions a second":      func(o *Options) { o.RatePerToken = MaxRatePerToken + 1 },
		"a question every":        func(o *Options) { o.PollEvery = time.Millisecond },
		"jobs held":               func(o *Options) { o.HoldPerToken = MaxKept + 1 },
		"must not be negative":    func(o *Options) { o.KeepFor = -1 },
		"at least twice that":     func(o *Options) { o.RenewEvery = 10 * time.Second },
		"and more than":           func(o *Options) { o.LeaseTTL, o.RenewEvery = leaseMargin, time.Millisecond },
		"20001 jobs held":         func(o *Options) { o.HoldPerToken = 20001 },
		"34 questions a second":   func(o *Options) { o.RatePerToken = 34 },
		"use 1s to 1h":            func(o *Options) { o.LongPoll = 2 * time.Hour },
		"without @ and blanks":    func(o *Options) { o.Replica = "" },
		"0s renewed every 5s: it": func(o *Options) { o.LeaseTTL = -1 },
	} {
		o := good
		spoil(&o)
		if strings.HasPrefix(problem, "0s") {
			require.Error(t, o.Validate())
			continue
		}
		require.ErrorContains(t, o.Validate(), problem)
		_, err := NewDesk(o)
		require.Error(t, err)
	}
}
