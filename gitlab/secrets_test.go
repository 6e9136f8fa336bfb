package gitlab

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// verbs without %p, which no type can answer; go vet refuses it for what is no pointer.
var verbs = []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%T", "%5.3v", "% x", "%o", "%e", "%c", "%U"}

// printed is v in all the ways in which it gets into a log.
func printed(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	for _, verb := range verbs {
		fmt.Fprintf(&b, verb+"\n", v)
		fmt.Fprintf(&b, verb+"\n", []any{v})
		fmt.Fprintf(&b, verb+"\n", struct{ V any }{v})
	}
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "v", v)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "v", v)
	data, err := json.Marshal(v)
	require.NoError(t, err)
	b.Write(data)
	return b.String()
}

// hidden fails if a secret is in a text, as itself or as the bytes that %x and %d print.
func hidden(t *testing.T, text, secret string) {
	t.Helper()
	for _, form := range []string{secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))), fmt.Sprintf("% x", secret), strings.Trim(fmt.Sprintf("%d", []byte(secret)), "[]")} {
		require.NotContains(t, text, form)
	}
}

func TestI12_TypesWithSecretsPrintAMask(t *testing.T) {
	body := []byte(`{"id":7,"token":"` + jobToken + `","variables":[{"key":"K","value":"` + apiToken + `"}]}`)
	p, err := ParsePayload(body)
	require.NoError(t, err)
	require.Equal(t, jobToken, p.Token)
	for _, v := range []any{p, &p, JobAnswer{Status: 201, Body: body}, &JobAnswer{Status: 201, Body: body}} {
		text := printed(t, v)
		hidden(t, text, jobToken)
		hidden(t, text, apiToken)
	}
	require.Equal(t, "job 7 of project 0, token [masked]", fmt.Sprint(p))
	require.Equal(t, "status 201, 114 bytes", fmt.Sprint(JobAnswer{Status: 201, Body: body}))
	require.Contains(t, printed(t, struct{ Token string }{jobToken}), jobToken, "the test can fail")
}

// Whatever a server answers, be it the token that it was sent, no error has it.
func TestI12_ErrorsHoldNoSecrets(t *testing.T) {
	const runnerToken = "glrt-Runner-Secret-0123456789"
	// echo is what a server knows: all secrets of the request, without quotes.
	echo := func(r *http.Request) string {
		body, _ := io.ReadAll(r.Body)
		return strings.ReplaceAll(fmt.Sprint(r.Header.Get("Authorization"), " ", r.Header.Get("Job-Token"), " ", r.Header.Get("Runner-Token"), " ", string(body)), `"`, "'")
	}
	echoing := func(status int, header, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			said := echo(r)
			w.Header().Set("Content-Type", "application/json")
			if name, format, ok := strings.Cut(header, ": "); ok {
				w.Header().Set(name, strings.ReplaceAll(format, "ECHO", strings.Join(strings.Fields(said), "-")))
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.ReplaceAll(body, "ECHO", said))
		}
	}
	answers := map[string]http.HandlerFunc{
		"a type":                echoing(200, "Content-Type: ECHO", "x"),
		"a redirect":            echoing(302, "Location: https://ECHO.example.com/?ECHO", ""),
		"a GraphQL error":       echoing(200, "", `{"errors":[{"message":"ECHO","extensions":{"code":"undefinedField"}}]}`),
		"another GraphQL error": echoing(200, "", `{"errors":[{"message":"ECHO"}]}`),
		"closed":                func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	for _, status := range []int{200, 201, 202, 400, 401, 403, 404, 409, 422, 429, 500} {
		answers[fmt.Sprint("a message with ", status)] = echoing(status, "", `{"message":"ECHO"}`)
		answers[fmt.Sprint("an OAuth error with ", status)] = echoing(status, "", `{"error":"ECHO","error_description":"ECHO"}`)
		answers[fmt.Sprint("a key with ", status)] = echoing(status, "", `{"id":{"ECHO":"ECHO"},"errors":[{"message":"ECHO"}]}`)
		answers[fmt.Sprint("half JSON with ", status)] = echoing(status, "", `{"ECHO`)
	}
	for name, h := range answers {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, h)
			ctx := context.Background()
			var errs []error
			add := func(_ any, err error) { errs = append(errs, err) }
			add(s.list(ctx, instance, StatusPending))
			add(s.list(ctx, Scope{Kind: Projects, Paths: []string{"a"}}, StatusPending))
			add(s.Job(ctx, 1, 7))
			add(s.Pipeline(ctx, 1, 7))
			add(s.Runner(ctx, 7))
			add(s.Ancestors(ctx, 7))
			add(s.RequestJob(ctx, []byte(`{"token":"`+runnerToken+`"}`), http.Header{"Runner-Token": {runnerToken}}))
			add(s.Verify(ctx, runnerToken, "s_1"))
			errs = append(errs, s.Check(ctx, instance), s.KeepPending(ctx, 7, jobToken), s.FailJob(ctx, 7, jobToken, "x", "y"))
			text := fmt.Sprintf("%v %+v %#v", s.Client, s.Client, errs)
			for _, err := range errs {
				text += fmt.Sprintf("%v %+v %#v", err, err, err)
			}
			for _, secret := range []string{apiToken, jobToken, runnerToken} {
				hidden(t, text, secret)
			}
		})
	}
}
