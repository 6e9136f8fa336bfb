package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/config"
)

const canary = "hunter2-canary"

func TestSecretIsMaskedEverywhere(t *testing.T) {
	s := config.NewSecret(canary)
	within := struct {
		S config.Secret
		P *config.Secret
		M map[string]config.Secret
	}{s, &s, map[string]config.Secret{"k": s}}

	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&out, verb+" "+verb+" ", s, &s)
		fmt.Fprintf(&out, verb, within)
	}
	b, err := json.Marshal(within)
	require.NoError(t, err)
	out.Write(b)
	b, err = yaml.Marshal(within)
	require.NoError(t, err)
	out.Write(b)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "secret", s, "within", within)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "secret", s, "within", within)

	require.NotContains(t, out.String(), canary)
	require.NotContains(t, strings.ToLower(out.String()), fmt.Sprintf("%x", canary))
	require.Contains(t, out.String(), "[MASKED]")
	require.Equal(t, canary, s.Reveal())
}

func TestSecretSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(content string) {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	write(canary + "\r\n")
	s, err := config.SecretSource{File: path}.Read()
	require.NoError(t, err)
	require.Equal(t, canary, s.Reveal())

	write("\n")
	_, err = config.SecretSource{File: path}.Read()
	require.ErrorIs(t, err, config.ErrNoSecret)
	write(strings.Repeat("x", config.MaxSecretBytes))
	_, err = config.SecretSource{File: path}.Read()
	require.NoError(t, err)
	write(strings.Repeat("x", config.MaxSecretBytes+1))
	_, err = config.SecretSource{File: path}.Read()
	require.ErrorIs(t, err, config.ErrNoSecret)
	_, err = config.SecretSource{File: path + "-none"}.Read()
	require.ErrorIs(t, err, os.ErrNotExist)

	t.Setenv("SPILLWAY_TEST_TOKEN", canary)
	s, err = config.SecretSource{Env: "SPILLWAY_TEST_TOKEN"}.Read()
	require.NoError(t, err)
	require.Equal(t, canary, s.Reveal())
	t.Setenv("SPILLWAY_TEST_TOKEN", "")
	_, err = config.SecretSource{Env: "SPILLWAY_TEST_TOKEN"}.Read()
	require.ErrorContains(t, err, "environment variable SPILLWAY_TEST_TOKEN is not set or empty")
	_, err = config.SecretSource{}.Read()
	require.ErrorIs(t, err, config.ErrNoSecret)
}

func TestRedact(t *testing.T) {
	const s = "s3cretS3cretS3cret"
	for _, text := range []string{
		"glrt-" + s, "token glpat-" + s + " was refused", "glcbt-64_" + s, "GR1348941" + s,
		"AKIA" + "S3CRETS3CRETS3CRET", "ASIA" + "S3CRETS3CRETS3CRET",
		"AIza" + strings.Repeat("s3cret", 6), "ya29." + s, "eyJhbGciOi." + s + "." + s,
		"Authorization: Bearer " + s, "authorization: basic " + s,
		"redis://user:" + s + "@redis:6379/0", "redis://:" + s + "@redis:6379/0",
		"PRIVATE-TOKEN: " + s, "JOB-TOKEN=" + s, `{"password":"` + s + `"}`, `password="my ` + s + ` x"`,
		"aws_secret_access_key = " + s, `"SecretAccessKey": "` + s + `"`, `msg="{\"api_key\":\"` + s + `\"}"`,
		"?private_token=" + s + "&a=b", "client_secret=" + s,
		"-----BEGIN RSA PRIVATE KEY-----\n" + s + "\n" + s + "\n-----END RSA PRIVATE KEY-----",
		`"-----BEGIN PRIVATE KEY-----\n` + s + `\n-----END PRIVATE KEY-----\n"`,
	} {
		got := config.Redact(text)
		require.Contains(t, got, "[MASKED]", text)
		require.NotContains(t, strings.ToLower(got), "s3cret", text)
		require.Equal(t, got, config.Redact(got), "redacting twice changes nothing")
	}
	for _, text := range []string{
		"", "pool linux: token file /run/secrets/token not found", "bearer of news", "https://example.org:8080/a@b",
		"asg AKIAx", "runner token is not known", `{"msg":"decision","pool":"linux","from":1,"to":2}`, "jobs at 10:30, 3 pending",
	} {
		require.Equal(t, text, config.Redact(text))
	}
	require.JSONEq(t, `{"password":"[MASKED]","b":1}`, config.Redact(`{"password":"a\"b","b":1}`))
}

func BenchmarkRedact(b *testing.B) {
	const line = `time=2024-01-02T03:04:05.000Z level=INFO msg="scaled out" pool=linux from=1 to=3 reason=demand provider=aws result=ok`
	for b.Loop() {
		config.Redact(line)
	}
}
