package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Names of pools are completed by asking the control plane; without one, by nothing.
func TestPoolsOfWorkersAreCompleted(t *testing.T) {
	addr := start(t, &fakeJobs{})
	for args, want := range map[*[]string]string{
		{"coordinator", "workers", "--pool", ""}:                   "free\ngpu\nlinux\n:4\n",
		{"coordinator", "unregister", ""}:                          "free\ngpu\n:4\n",
		{"coordinator", "unregister", "gpu", ""}:                   ":4\n",
		{"coordinator", "pools", "--output", ""}:                   "table\njson\n:4\n",
		{"--addr", "127.0.0.1:1", "coordinator", "unregister", ""}: ":4\n",
	} {
		_, out, _ := ctl(t, addr, "", append([]string{"__complete"}, *args...)...)
		require.Equal(t, want, out, "%v", *args)
	}
}
