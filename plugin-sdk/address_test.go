package pluginsdk_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

var (
	goodAddresses = []string{
		"", "10.0.0.7", "10.0.0.7:9252", "2001:db8::7", "[2001:db8::7]:9252",
		"ip-10-0-0-7.ec2.internal", "runner_7.example.org:1", "h:65535", strings.Repeat("x", pluginsdk.MaxHostBytes),
	}
	badAddresses = []string{
		"http://10.0.0.7", "10.0.0.7/metrics", "user@host", "host:", ":9252", "host:0", "host:65536", "host:http", "host:-1", "a b", "fe80::1%eth0", "[fe80::1%/x]:9252",
		"[2001:db8::7]", "2001:db8::7:65536:x", "host\n", "-host", ".host", "häuschen", "h?x", "h#x", "a:b:c", "\xff",
		strings.Repeat("x", pluginsdk.MaxHostBytes+1),
	}
)

func TestCheckAddress(t *testing.T) {
	for _, address := range goodAddresses {
		require.NoError(t, pluginsdk.CheckAddress(address), "%q", address)
	}
	for _, address := range badAddresses {
		require.Error(t, pluginsdk.CheckAddress(address), "%q", address)
	}
}
