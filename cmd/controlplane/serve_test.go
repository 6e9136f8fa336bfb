package main

import (
	"bytes"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
)

// Whoever replaces a configuration may do so at any time, and says so with a signal that
// ends a program which doesn't listen for it.
func TestAHangupWhileItStartsDoesNotEndIt(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // a store that doesn't answer
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	cfg, err := config.Parse("test", fmt.Appendf(nil, `
plugin_dir: /nowhere
store: {redis: {addrs: [%q]}}
providers: {cloud: {plugin: fake}}
pools: [{name: linux, capability: {tags: [a]}, provider: cloud, policy: {max: 1}}]
`, silent.Addr().String()))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- serve(t.Context(), new(bytes.Buffer), "test", cfg) }()
	conn, err := silent.Accept()
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGHUP))
	var coded *codeError
	require.ErrorAs(t, <-ended, &coded)
	require.Equal(t, exitUnavailable, coded.code)
}
