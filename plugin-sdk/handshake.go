package pluginsdk

import (
	"cmp"
	"context"
	"fmt"

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

// Handshake is how host and plugin recognise each other. Which version of the
// contract they speak is settled by [Versions].
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{
		ProtocolVersion:  OldestContract, // of a host that doesn't say what it speaks
		MagicCookieKey:   CookieKey,
		MagicCookieValue: CookieValue,
	}
}

// Versions is what a side offers; the highest that both offer is spoken. A host
// passes nil.
func Versions(p Provider) map[int]plugin.PluginSet {
	offered := map[int]plugin.PluginSet{}
	for v := OldestContract; v <= ContractVersion; v++ {
		offered[v] = plugin.PluginSet{PluginName: &Plugin{Provider: p, Version: v}}
	}
	return offered
}

// Plugin is a provider as go-plugin sees it. A host leaves Provider nil and
// dispenses a [Provider]; an author can test through the wire with
// plugin.TestPluginGRPCConn.
type Plugin struct {
	plugin.NetRPCUnsupportedPlugin
	Provider Provider
	Version  int // of the contract; 0 = ContractVersion
}

var _ plugin.GRPCPlugin = (*Plugin)(nil)

// GRPCServer registers the provider.
func (p *Plugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	register(s, p.Provider, cmp.Or(p.Version, ContractVersion))
	return nil
}

// GRPCClient returns a [Provider] that speaks over conn.
func (p *Plugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return NewClient(conn), nil
}

// Connect starts the plugin of client, which was made with cfg and AutoMTLS, and
// connects to it.
//
// A plugin in another language can rarely do TLS as go-plugin does it. With one
// that offers no certificate the connection is in plaintext, if it listens on a unix
// socket: that lies in a directory which only this user can enter, so that TLS would
// keep nobody out who isn't out already.
func Connect(client *plugin.Client, cfg *plugin.ClientConfig) (plugin.ClientProtocol, error) {
	addr, err := client.Start()
	if err != nil {
		return nil, err
	}
	if cfg.TLSConfig != nil && cfg.TLSConfig.RootCAs == nil {
		if addr.Network() != "unix" {
			return nil, fmt.Errorf("it listens on %s %s without a certificate: without TLS it must listen on a unix socket", addr.Network(), addr)
		}
		cfg.TLSConfig = nil
	}
	return client.Client()
}
