package gitlab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestOptions(t *testing.T) {
	for url, says := range map[string]string{
		"": "begin with https", "gitlab.example.com": "begin with https", "ftp://a": "begin with https", "https://": "host",
		"https://me:pass" + "word@a": "api_token", "https://a?x=1": "no ?", "https://a#x": "no #", "https://a b\x7f:pass": "not a URL",
	} {
		_, err := New(Options{URL: url})
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "pass"+"word@")
	}
	_, err := New(Options{URL: "https://a", PerMinute: -1})
	require.Error(t, err)
	_, err = New(Options{URL: "https://a", CAFile: filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, err, os.ErrNotExist)
	empty := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(empty, []byte("no certificate"), 0o600))
	_, err = New(Options{URL: "https://a", CAFile: empty})
	require.ErrorContains(t, err, "PEM")
	_, err = New(Options{URL: "https://a/"})
	require.NoError(t, err)
}

func TestABaseBelowAPath(t *testing.T) {
	s := newStage(t, answering(200, asJSON, `{"id":7,"status":"running"}`), func(o *Options) { o.URL += "/git/lab/" })
	p, err := s.Pipeline(context.Background(), 3, 7)
	require.NoError(t, err)
	require.Equal(t, PipelineRef{7, "running"}, p)
	require.Equal(t, 1, s.count("GET /git/lab/api/v4/projects/3/pipelines/7"))
}

func TestTheCallersHTTPClientIsUsedAndNotChanged(t *testing.T) {
	server := httptest.NewServer(answering(200, asJSON, `{"id":7,"status":"running"}`))
	defer server.Close()
	mine := server.Client()
	c, err := New(Options{URL: server.URL, HTTP: mine, Token: func() (string, error) { return apiToken, nil }})
	require.NoError(t, err)
	_, err = c.Pipeline(context.Background(), 3, 7)
	require.NoError(t, err)
	require.Nil(t, mine.CheckRedirect)
}

func TestTokensAreReadAnew(t *testing.T) {
	var got []string
	token, failing := "first", false
	s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		answering(200, asJSON, `{"id":7,"status":"running"}`)(w, r)
	}), func(o *Options) {
		o.Token = func() (string, error) {
			if failing {
				return token, os.ErrPermission
			}
			return token, nil
		}
	})
	ask := func() error { _, err := s.Pipeline(context.Background(), 1, 7); return err }
	require.NoError(t, ask())
	token = "second\n" // as a file ends
	require.NoError(t, ask())
	require.Equal(t, []string{"Bearer first", "Bearer second"}, got)

	for _, bad := range []string{"", " ", "two words", "line\nbreak", "umläut", strings.Repeat("x", maxTokenBytes+1)} {
		token = bad
		require.ErrorIs(t, ask(), ErrUnauthorized)
	}
	token = strings.Repeat("x", maxTokenBytes)
	require.NoError(t, ask())
	failing = true
	err := ask()
	require.ErrorIs(t, err, ErrUnauthorized)
	require.ErrorIs(t, err, os.ErrPermission)
	require.Len(t, got, 3)

	c, err := New(Options{URL: s.server.URL})
	require.NoError(t, err)
	_, err = c.Job(context.Background(), 1, 7)
	require.ErrorIs(t, err, ErrUnauthorized)
	require.ErrorContains(t, err, "gitlab.api_token")
}

func TestTheBudgetPacesAList(t *testing.T) {
	s := newStage(t, graphAPI(func(q graphQuestion) any {
		return object{"jobs": graphList(1000, q.Variables.After, func(id int64) object { return graphJobOf(id, "pending") })}
	}), func(o *Options) { o.PerMinute = 8 })
	require.Len(t, jobsOf(t, s, instance), 1000)
	require.Equal(t, 10, s.count("POST"))
	require.WithinDuration(t, start.Add(80*time.Second), s.clock(), time.Second, "2 at once and 6 a minute: 8 of 10 waited 10 s each")
}

func TestAnUsedUpBudget(t *testing.T) {
	s := newStage(t, answering(200, asJSON, `{"id":7,"status":"running"}`), func(o *Options) { o.PerMinute = 4 })
	s.wait = func(<-chan struct{}, time.Duration) bool { return true } // time stands still: all at once
	var limited *Limited
	for n := 0; ; n++ {
		_, err := s.Pipeline(context.Background(), 1, 7)
		if errors.As(err, &limited) {
			require.True(t, limited.Own)
			require.ErrorContains(t, err, "try again in")
			require.Equal(t, 7, n, "one at once, and those whose turn comes within maxBudgetWait")
			break
		}
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.pass(maxBudgetWait + 20*time.Second)
	_, err := s.Pipeline(ctx, 1, 7)
	require.NoError(t, err)
	_, err = s.Pipeline(ctx, 1, 7)
	require.ErrorAs(t, err, &limited, "who can't wait until its turn is told at once")
}

// However calls come, no minute sees more than the budget.
func TestTheBudgetHoldsInAnyMinute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perMinute := rapid.IntRange(2, 600).Draw(t, "budget")
		b := newBudget(perMinute)
		now := start
		var made []time.Time
		for range rapid.IntRange(1, 300).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "pause ms")) * time.Millisecond)
			if d, err := b.turn(now, maxBudgetWait); err == nil {
				made = append(made, now.Add(d))
			}
		}
		for i, first := range made {
			within := 0
			for _, at := range made[i:] {
				if at.Sub(first) < time.Minute-time.Microsecond { // the limiter counts in floats
					within++
				}
			}
			if within > perMinute {
				t.Fatalf("%d calls in a minute, %d are allowed", within, perMinute)
			}
		}
	})
}

func TestABudgetPrintsItself(t *testing.T) {
	require.Equal(t, "no limit", newBudget(0).String())
	require.Equal(t, "3.8 calls a second, 75 at once", newBudget(300).String())
}

func TestTheCacheIsBoundedAndAges(t *testing.T) {
	c := newCache[int, int](3, time.Minute)
	for i := range 10 {
		c.put(i, i, start)
		c.put(i, i*10, start)
	}
	require.Len(t, c.mu.entries, 3)
	_, ok := c.get(6, start)
	require.False(t, ok)
	v, ok := c.get(7, start.Add(time.Minute-1))
	require.True(t, ok)
	require.Equal(t, 70, v)
	_, ok = c.get(7, start.Add(time.Minute))
	require.False(t, ok)
}

func TestManyMayCallAtOnce(t *testing.T) {
	s := newStage(t, answering(200, asJSON, `[{"id":3}]`), func(o *Options) { o.PerMinute = 6000 })
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if _, err := s.Ancestors(context.Background(), int64(i%5+1)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, s.count("GET"), 50)
}

func TestQuoteIsFitForASentence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[a-zA-Z0-9]{8,20}`).Draw(t, "secret")
		got := quote(rapid.String().Draw(t, "before")+secret+rapid.String().Draw(t, "after"), secret)
		if len(got) > maxMessageBytes+len("…") || strings.ContainsAny(got, "\n\r\x00") || strings.Contains(got, secret) {
			t.Fatalf("%q", got)
		}
	})
}

func TestScopeKindsHaveNames(t *testing.T) {
	require.Equal(t, "instance groups projects ScopeKind(9)", fmt.Sprint(Instance, " ", Groups, " ", Projects, " ", ScopeKind(9)))
}
