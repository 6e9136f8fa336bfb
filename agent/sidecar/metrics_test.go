package sidecar

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const idleRunner = "# TYPE gitlab_runner_concurrent gauge\ngitlab_runner_concurrent 4\ngo_goroutines 30\n"

func TestB1_Metrics(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want reading
	}{
		"idle":                   {idleRunner, reading{0, 4}},
		"jobs of two runners":    {idleRunner + "gitlab_runner_jobs{runner=\"a\"} 2\ngitlab_runner_jobs{runner=\"b\"} 1\n", reading{3, 4}},
		"jobs that are 0":        {idleRunner + "gitlab_runner_jobs{runner=\"a\"} 0\n", reading{0, 4}},
		"of stages":              {idleRunner + "# TYPE gitlab_runner_jobs gauge\ngitlab_runner_jobs{stage=\"a\"} 1\ngitlab_runner_jobs{stage=\"b\"} 1\n", reading{2, 4}},
		"limits of all":          {idleRunner + "gitlab_runner_limit{runner=\"a\"} 1\ngitlab_runner_limit{runner=\"b\"} 2\n", reading{0, 3}},
		"a limit of none":        {idleRunner + "gitlab_runner_limit{runner=\"a\"} 1\ngitlab_runner_limit{runner=\"b\"} 0\n", reading{0, 4}},
		"limits above":           {idleRunner + "gitlab_runner_limit{runner=\"a\"} 9\n", reading{0, 4}},
		"no concurrent":          {"gitlab_runner_version_info{version=\"1\"} 1\n", reading{0, 0}},
		"no concurrent, a limit": {"gitlab_runner_limit{runner=\"a\"} 9\n", reading{0, 0}},
		"absurdly many":          {"gitlab_runner_concurrent 1e12\ngitlab_runner_jobs 1e12\n", reading{1000, 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse([]byte(c.text))
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestC12_WhatIsNoNumberOfJobsIsNotZero(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":              "",
		"another program":      "go_goroutines 30\nprometheus_build_info 1\n",
		"a web page":           "<html><body>gitlab_runner_jobs 0</body></html>",
		"NaN jobs":             idleRunner + "gitlab_runner_jobs NaN\n",
		"infinitely many":      idleRunner + "gitlab_runner_jobs +Inf\n",
		"minus one":            idleRunner + "gitlab_runner_jobs -1\n",
		"half a job":           idleRunner + "gitlab_runner_jobs 0.5\n",
		"NaN at once":          "gitlab_runner_concurrent NaN\n",
		"NaN limit":            idleRunner + "gitlab_runner_limit NaN\n",
		"a histogram":          idleRunner + "# TYPE gitlab_runner_jobs histogram\ngitlab_runner_jobs_bucket{le=\"+Inf\"} 1\ngitlab_runner_jobs_sum 1\ngitlab_runner_jobs_count 1\n",
		"cut in the middle":    idleRunner + "gitlab_runner_jobs{runner=\"a",
		"two values in a line": "gitlab_runner_jobs 1 2 3\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(text))
			require.ErrorIs(t, err, ErrMetrics)
		})
	}
}

func TestC12_AnswersThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"500": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, idleRunner)
		}, "500"},
		"no content": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, "204"},
		"HTML": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, idleRunner)
		}, "a web page"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, "302"},
		"too long": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, idleRunner, strings.Repeat("#\n", maxMetricsBytes/2))
		}, "more than"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, idleRunner)
		}, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.answer)
			defer server.Close()
			_, err := scrape(t.Context(), newClient(), server.URL)
			require.ErrorIs(t, err, ErrMetrics)
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := scrape(t.Context(), newClient(), "http://127.0.0.1:1/")
	require.ErrorIs(t, err, ErrMetrics)
}

func TestTheLongestAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, idleRunner, strings.Repeat("\n", maxMetricsBytes-len(idleRunner)))
	}))
	defer server.Close()
	got, err := scrape(t.Context(), newClient(), server.URL)
	require.NoError(t, err)
	require.Equal(t, reading{0, 4}, got)
}
