package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a host must know to start it.
const (
	cookieKey   = "ORCHARD_GATE"
	cookieValue = "open-sesame"
)

// versions are the protocol versions that it speaks.
var versions = []int{3, 4}

// shape is what FLEETINGSTAND says.
type shape map[string]bool

func readShape(value string) shape {
	s := shape{}
	for word := range strings.SplitSeq(value, ",") {
		s[word] = true
	}
	return s
}

func main() {
	s := readShape(os.Getenv("FLEETINGSTAND"))
	o, err := newOrchard(s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleetingstand:", err)
		os.Exit(2)
	}
	sets := map[int]plugin.PluginSet{}
	for _, v := range versions {
		sets[v] = plugin.PluginSet{"orchard": &orchardPlugin{orchard: o}}
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: cookieKey, MagicCookieValue: cookieValue},
		VersionedPlugins: sets,
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, grpc.StreamInterceptor(s.withoutReflection))...)
		},
		Logger: hclog.NewNullLogger(),
	})
}

// withoutReflection is how an older server looks: go-plugin itself registers both
// versions.
func (s shape) withoutReflection(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if s["mute"] && strings.HasPrefix(info.FullMethod, "/grpc.reflection.") || s["v1alpha"] && strings.HasPrefix(info.FullMethod, "/grpc.reflection.v1.") {
		return status.Errorf(codes.Unimplemented, "unknown service %s", info.FullMethod)
	}
	return next(srv, stream)
}

var _ plugin.GRPCPlugin = (*orchardPlugin)(nil)

type orchardPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	orchard *orchard
}

func (p *orchardPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	p.orchard.register(s)
	return nil
}

func (*orchardPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("it only serves")
}
