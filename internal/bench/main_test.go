package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		code int
		says string // on the one that it should be on
	}{
		{"help", []string{"--help"}, 0, "policy/decide"},
		{"unknown flag", []string{"-nope"}, exitUsage, "nope"},
		{"argument", []string{"x"}, exitUsage, `unexpected argument "x"`},
		{"output", []string{"-o", "xml"}, exitUsage, "use text or json"},
		{"rounds", []string{"-rounds", "-1"}, exitUsage, "use 1 or more"},
		{"pattern", []string{"-run", "("}, exitUsage, "missing closing )"},
		{"no such benchmark", []string{"-run", "nothing"}, exitUsage, `no benchmark is named like "nothing"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, log bytes.Buffer
			require.Equal(t, c.code, run(t.Context(), c.args, &out, &log))
			if c.code == 0 {
				require.Contains(t, out.String(), c.says)
			} else {
				require.Contains(t, log.String(), c.says)
				require.Empty(t, out.String())
			}
		})
	}
}

func TestOneBenchmark(t *testing.T) {
	args := []string{"-run", "policy/decide", "-short", "-rounds", "1"}
	var out, log bytes.Buffer
	require.Zero(t, run(t.Context(), args, &out, &log))
	require.Contains(t, out.String(), "## policy/decide")

	out.Reset()
	require.Zero(t, run(t.Context(), append(args, "-o", "json"), &out, &log))
	var report struct {
		Benchmarks []struct{ Name string }
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &report))
	require.Equal(t, "policy/decide", report.Benchmarks[0].Name)
}
