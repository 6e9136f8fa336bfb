package pluginsdk

import (
	"context"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// PluginName is the name under which a provider is dispensed.
const PluginName = "provider"

// CookieKey and CookieValue are go-plugin's magic cookie. It is no secret: it
// only tells a person who starts a plugin by hand that this leads nowhere.
const (
	CookieKey   = "SPILLWAY_PLUGIN"
	CookieValue = "provider"
)

// StdinEnv is set to "1" by a host that gives the plugin a pipe as standard
// input and holds the other end for as long as it lives. Its end is then the
// end of the host. Without the variable standard input says nothing: it may
// be /dev/null.
const StdinEnv = "SPILLWAY_PLUGIN_STDIN"

// MaxMessageBytes bounds one gRPC message in either direction [bytes]. grpc's
// 4 MiB is less than a list of the largest group.
const MaxMessageBytes = 64 << 20

// Handshake is what host and plugin must agree on.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{
		ProtocolVersion:  ContractVersion,
		MagicCookieKey:   CookieKey,
		MagicCookieValue: CookieValue,
	}
}

// Plugin is a provider as go-plugin sees it. A host leaves Provider nil and
// dispenses a [Provider]; an author can test through the wire with
// plugin.TestPluginGRPCConn.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
	Provider Provider
}

var _ plugin.GRPCPlugin = (*Plugin)(nil)

// GRPCServer registers the provider.
func (p *Plugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	Register(s, p.Provider)
	return nil
}

// GRPCClient returns a [Provider] that speaks over conn.
func (p *Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return NewClient(conn), nil
}
