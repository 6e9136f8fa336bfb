package local

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var values = map[string]string{instanceMark: "linux-1", portMark: "4711", workDirMark: "/w/{x}", groupMark: "linux"}

func TestFill(t *testing.T) {
	for part, want := range map[string]string{
		"":                            "",
		"--plain":                     "--plain",
		"{instance}":                  "linux-1",
		"127.0.0.1:{metrics_port}/":   "127.0.0.1:4711/",
		"{group}{group}":              "linuxlinux",
		"{work_dir}":                  "/w/{x}", // what is filled in is not looked at again
		"{{instance}}":                "{instance}",
		"{{{instance}}}":              "{linux-1}",
		"a{{b}}c":                     "a{b}c",
		"${{HOME}}/{group}":           "${HOME}/linux",
		"{\"a\": 1}":                  "error",
		"{":                           "error",
		"}":                           "error",
		"{}":                          "error",
		"{Instance}":                  "error",
		"{ instance }":                "error",
		"{metrics-port}":              "error",
		"{instance":                   "error",
		"instance}":                   "error",
		"{{instance}":                 "error",
		"{" + strings.Repeat("x", 99): "error",
	} {
		got, err := fill(part, values)
		if want == "error" {
			require.Error(t, err, "%q gave %q", part, got)
			continue
		}
		require.NoError(t, err, part)
		require.Equal(t, want, got)
	}
}

// Any text is a part of a command once its braces are doubled, and means itself.
func TestEveryTextCanBeWritten(t *testing.T) {
	double := strings.NewReplacer("{", "{{", "}", "}}")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("{}ab instance"))).Draw(t, "text")
		got, err := fill(double.Replace(text), values)
		require.NoError(t, err)
		require.Equal(t, text, got)
	})
}

func TestAsksForPort(t *testing.T) {
	require.True(t, asksForPort([]string{"a", "b{metrics_port}"}))
	require.False(t, asksForPort([]string{"a", "{{metrics_port}}", "{group}"}))
	require.False(t, asksForPort(nil))
}

// A port may be found again that an instance has and does not listen on yet.
func TestPortsAreNotGivenTwice(t *testing.T) {
	p, g := waiting(t, 0)
	for i := range 200 {
		port, err := p.freePort()
		require.NoError(t, err)
		require.False(t, p.given(port))
		id := strings.Repeat("i", i+1)
		g.instances[id] = &instance{id: id, port: port, orders: make(chan order, maxOrders)}
	}
}
