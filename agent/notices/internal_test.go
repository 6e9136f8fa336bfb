package notices

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The environment's proxy is for the network: asked through it, a question would
// leave this instance and somebody else could answer.
func TestNoProxyIsAsked(t *testing.T) {
	transport, ok := newClient().Transport.(*http.Transport)
	require.True(t, ok)
	require.Nil(t, transport.Proxy)
}
