package collect_test

import (
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler"
)

const query = "sum(gitlab_runner_jobs)"

// answering answers every query.
func answering(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// result is a successful answer of Prometheus.
func result(kind, value string) http.HandlerFunc {
	return withType("application/json", fmt.Sprintf(`{"status":"success","data":{"resultType":%q,"result":%s}}`, kind, value))
}

// status answers with a code.
func status(code int, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h(&early{w, code}, r)
	}
}

// early writes its status with the first byte.
type early struct {
	http.ResponseWriter

	code int
}

func (e *early) Write(p []byte) (int, error) {
	if e.code != 0 {
		e.WriteHeader(e.code)
		e.code = 0
	}
	return e.ResponseWriter.Write(p)
}

// prometheus has all the time it needs to answer, unless o says how little it has.
func prometheus(t *testing.T, o collect.PrometheusOptions) *collect.Prometheus {
	t.Helper()
	o.Query, o.Timeout = cmp.Or(o.Query, query), cmp.Or(o.Timeout, patience)
	p, err := collect.NewPrometheus(o)
	require.NoError(t, err)
	return p
}

func TestOneNumberIsACount(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 250_000_000)
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   float64
	}{
		"scalar":          {result("scalar", `[1700000000.250,"3"]`), 3},
		"one series":      {result("vector", `[{"metric":{"a":"b"},"value":[1700000000.250,"2.5"]}]`), 2.5},
		"an honest zero":  {result("vector", `[{"metric":{},"value":[1700000000.250,"0"]}]`), 0},
		"answers to GETs": {onlyGET(result("scalar", `[1700000000.250,"3"]`)), 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count, err := prometheus(t, collect.PrometheusOptions{URL: answering(t, c.answer)}).Count(t.Context())
			require.NoError(t, err)
			require.InDelta(t, c.want, count.Jobs, 0)
			require.True(t, at.Equal(count.At), "the sample's own time: %s", count.At)
		})
	}
}

func onlyGET(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Query().Get("query") != query {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		h(w, r)
	}
}

// What is not one number of jobs is an error that says whose fault it is and what to
// do, and never 0.
func TestC12_WhatIsNoNumberIsNotZero(t *testing.T) {
	t.Parallel()
	nothing := withType("text/html; charset=utf-8", "<html>Sign in</html>")
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		kind   pluginsdk.Kind
		says   string
	}{
		"absent":         {result("vector", `[]`), pluginsdk.KindTransient, "no value is not 0: write the query so that it has one"},
		"two series":     {result("vector", `[{"metric":{"a":"1"},"value":[1,"1"]},{"metric":{"a":"2"},"value":[1,"1"]}]`), pluginsdk.KindInvalid, "2 series instead of one number: put sum()"},
		"NaN":            {result("vector", `[{"metric":{},"value":[1,"NaN"]}]`), pluginsdk.KindInvalid, "NaN, which is no number of jobs: it divides 0 by 0"},
		"+Inf":           {result("scalar", `[1,"+Inf"]`), pluginsdk.KindInvalid, "+Inf, which is no number of jobs: it divides by 0"},
		"-Inf":           {result("scalar", `[1,"-Inf"]`), pluginsdk.KindInvalid, "-Inf, which is no number"},
		"negative":       {result("scalar", `[1,"-3"]`), pluginsdk.KindInvalid, "-3, and there are no fewer than 0 jobs"},
		"string":         {result("string", `[1,"3"]`), pluginsdk.KindInvalid, "a string instead of a number"},
		"range":          {result("matrix", `[{"metric":{},"values":[[1,"1"],[2,"2"]]}]`), pluginsdk.KindInvalid, "over a range of time instead of one number"},
		"histogram":      {result("vector", `[{"metric":{},"histogram":[1,{"count":"1","sum":"1","buckets":[[0,"0","1","1"]]}]}]`), pluginsdk.KindInvalid, "a histogram instead of a number"},
		"a warning":      {withType("application/json", `{"status":"success","warnings":["one store is away"],"data":{"resultType":"scalar","result":[1,"3"]}}`), pluginsdk.KindTransient, "a part may be missing: one store is away"},
		"web page":       {nothing, pluginsdk.KindInvalid, `"text/html" instead of JSON`},
		"other JSON":     {withType("application/json", `{"hello":"world"}`), pluginsdk.KindInvalid, "no answer of Prometheus"},
		"garbage":        {withType("application/json", "\x00{"), pluginsdk.KindInvalid, "no answer of Prometheus"},
		"nothing":        {withType("application/json", ""), pluginsdk.KindInvalid, "no answer of Prometheus"},
		"unknown kind":   {result("matrioshka", `[]`), pluginsdk.KindInvalid, "no answer of Prometheus"},
		"too large":      {result("vector", `[`+strings.Repeat(" ", 1<<20)+`]`), pluginsdk.KindInvalid, "more than 1048576 bytes instead of one number"},
		"bad query":      {status(400, withType("application/json", `{"status":"error","errorType":"bad_data","error":"parse error: unexpected end of input"}`)), pluginsdk.KindInvalid, "refuses it: parse error"},
		"too many":       {status(422, withType("application/json", `{"status":"error","errorType":"execution","error":"query processing would load too many samples"}`)), pluginsdk.KindInvalid, "refuses it: query processing"},
		"its timeout":    {status(503, withType("application/json", `{"status":"error","errorType":"timeout","error":"query timed out"}`)), pluginsdk.KindTransient, "can't answer now: query timed out"},
		"broken":         {status(500, nothing), pluginsdk.KindTransient, "answers with status 500"},
		"broken in JSON": {status(502, withType("application/json", `{}`)), pluginsdk.KindTransient, "can't answer now"},
		"not found":      {status(404, nothing), pluginsdk.KindInvalid, "answers with status 404: prometheus.url lacks"},
		"bad request":    {status(400, nothing), pluginsdk.KindInvalid, "answers with status 400: correct prometheus.url"},
		"no token":       {status(401, nothing), pluginsdk.KindAuth, "status 401: set prometheus.token"},
		"bad token":      {status(403, withType("application/json", `{"message":"no"}`)), pluginsdk.KindAuth, "status 403: set prometheus.token"},
		"too often":      {status(429, withType("application/json", `{}`)), pluginsdk.KindThrottled, "make count.every longer"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://login.example/in?secret=1", http.StatusFound)
		}, pluginsdk.KindInvalid, `redirects to "https://login.example/in":`},
		"redirect in JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://login.example/in?secret=1")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusFound)
		}, pluginsdk.KindInvalid, `redirects to "https://login.example/in":`},
		"no HTTP": {raw("SSH-2.0-OpenSSH_9.2\r\n"), pluginsdk.KindTransient, "doesn't answer: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := answering(t, c.answer)
			_, err := prometheus(t, collect.PrometheusOptions{URL: url + "/prom"}).Count(t.Context())
			var said *pluginsdk.Error
			require.ErrorAs(t, err, &said)
			require.Equal(t, c.kind, said.Kind, said.Message)
			require.Contains(t, said.Message, fmt.Sprintf("query %q: %s/prom ", query, url))
			require.Contains(t, said.Message, c.says)
			require.NotContains(t, said.Message, "\n")
			require.NotContains(t, said.Message, "%!")
			require.NotContains(t, said.Message, "secret")
			require.NotContains(t, said.Message, "<html>")
		})
	}
}

func TestC12_AServerThatIsAwaySaysNothing(t *testing.T) {
	t.Parallel()
	hangs := answering(t, func(_ http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // a server only notices that a client has gone when it has read all
		<-r.Context().Done()
	})
	_, err := prometheus(t, collect.PrometheusOptions{URL: hangs, Timeout: 50 * time.Millisecond}).Count(t.Context())
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.ErrorContains(t, err, "doesn't answer in time")

	_, err = prometheus(t, collect.PrometheusOptions{URL: "http://" + peertest.DeadAddress(t)}).Count(t.Context())
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.ErrorContains(t, err, "connection refused")
}

// A value keeps the time that its server gives it: one that is old is too old for the
// scaler however often it is asked for.
func TestC12_AStaleValueIsNoValue(t *testing.T) {
	t.Parallel()
	answer := func(off time.Duration) collect.Prometheus {
		url := answering(t, func(w http.ResponseWriter, r *http.Request) {
			result("scalar", fmt.Sprintf(`[%d,"3"]`, time.Now().Add(off).Unix()))(w, r)
		})
		return *prometheus(t, collect.PrometheusOptions{URL: url})
	}
	old, fresh, ahead := answer(-time.Minute), answer(0), answer(time.Hour)
	polls := scaler.NewPolls(map[string]scaler.CountSource{
		"old": {Every: time.Second, Read: old.Count}, "fresh": {Every: time.Second, Read: fresh.Count},
	}, &scaler.Events{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		polls.Run(ctx)
	}()
	defer func() {
		stop()
		<-done
	}()
	require.Eventually(t, func() bool {
		jobs, _, err := polls.Count("fresh", time.Now())
		return err == nil && jobs == 3
	}, patience, often)
	require.Eventually(t, func() bool {
		_, ok, err := polls.Count("old", time.Now())
		return ok && err != nil && strings.Contains(err.Error(), " UTC, 1m")
	}, patience, often)

	before := time.Now()
	count, err := ahead.Count(t.Context())
	require.NoError(t, err)
	require.WithinRange(t, count.At, before, time.Now(), "nothing is newer than the question")
}

func TestTheTokenIsSentAndNeverSaid(t *testing.T) {
	t.Parallel()
	const secret = "glsa_canary"
	url := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+secret {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		result("scalar", `[1,"3"]`)(w, r)
	})
	token, tokenErr := secret, error(nil)
	p := prometheus(t, collect.PrometheusOptions{URL: url, Token: func() (string, error) { return token, tokenErr }})
	_, err := p.Count(t.Context())
	require.NoError(t, err)
	token = "glsa_wrong"
	_, err = p.Count(t.Context())
	require.ErrorIs(t, err, pluginsdk.ErrAuth)
	require.NotContains(t, err.Error(), token)
	tokenErr = errors.New("no such file")
	_, err = p.Count(t.Context())
	require.ErrorIs(t, err, pluginsdk.ErrAuth)
	require.ErrorContains(t, err, "its token can't be read: no such file")

	withPassword := strings.Replace(url, "http://", "http://me:hunter2@", 1)
	_, err = prometheus(t, collect.PrometheusOptions{URL: withPassword}).Count(t.Context())
	require.ErrorIs(t, err, pluginsdk.ErrAuth)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestPrometheusOverTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(result("scalar", `[1,"3"]`))
	t.Cleanup(server.Close)
	_, err := prometheus(t, collect.PrometheusOptions{URL: server.URL}).Count(t.Context())
	require.ErrorIs(t, err, pluginsdk.ErrTransient)
	require.ErrorContains(t, err, "a certificate that isn't trusted")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	count, err := prometheus(t, collect.PrometheusOptions{URL: server.URL, CAFile: ca}).Count(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 3, count.Jobs, 0)
}

func TestPrometheusOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for says, o := range map[string]collect.PrometheusOptions{
		"prometheus.url":     {URL: "localhost:9090", Query: query},
		"prometheus.query":   {URL: "http://localhost:9090", Query: " \n"},
		"prometheus.ca_file": {URL: "https://localhost:9090", Query: query, CAFile: "/no/such/file"},
	} {
		_, err := collect.NewPrometheus(o)
		require.ErrorContains(t, err, says)
	}
}
