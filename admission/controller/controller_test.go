package controller

import (
	"context"
	"flag"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/spillway-ci/spillway/admission"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

const within = 80 * time.Second

func TestWhatCannotBegin(t *testing.T) {
	t.Parallel()
	whole := func(change func(*Options)) Options {
		o := Options{Addrs: []string{"127.0.0.1:1"}, Controller: "a"}
		change(&o)
		return o
	}
	for complaint, o := range map[string]Options{
		"name the controller": whole(func(o *Options) { o.Controller = "" }),
		"the address":         whole(func(o *Options) { o.Addrs = nil }),
		"257 jobs":            whole(func(o *Options) { o.MaxBatch = admission.MaxBatch + 1 }),
		"-1 jobs":             whole(func(o *Options) { o.MaxBatch = -1 }),
		"no such file":        whole(func(o *Options) { o.CAFile = filepath.Join(t.TempDir(), "ca") }),
		"key":                 whole(func(o *Options) { o.KeyFile = "key" }), // else it would speak in plaintext
		"address \"\\x00\"":   whole(func(o *Options) { o.Addrs = []string{"\x00"} }),
		"in plaintext": whole(func(o *Options) {
			o.Addrs, o.TokenFile = []string{"127.0.0.1:1", "192.0.2.1:7701"}, "token"
		}),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		err := Run(ctx, o, allowAll)
		require.NoError(t, ctx.Err(), "%s: it has begun", complaint)
		cancel()
		require.ErrorContains(t, err, complaint)
	}
}

// tokens serves the streams of a real listener, and notes what they were called with.
type tokens struct {
	admissionv1.UnimplementedAdmissionServiceServer

	seen chan string
}

func (s *tokens) Connect(rpc admissionv1.AdmissionService_ConnectServer) error {
	md, _ := metadata.FromIncomingContext(rpc.Context())
	m, err := rpc.Recv()
	if err != nil {
		return err
	}
	s.seen <- m.GetHello().GetController() + " " + md.Get("authorization")[0]
	<-rpc.Context().Done()
	return rpc.Context().Err()
}

// One instance is connected to each address, with its token, until the context ends.
func TestRunConnectsEverywhere(t *testing.T) {
	t.Parallel()
	service := &tokens{seen: make(chan string, 2)}
	tokenFile := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(tokenFile, []byte("secret\n"), 0o600))
	var o Options
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	o.Flags(flags)
	args := []string{"-controller", "a", "-token-file", tokenFile}
	for range 2 {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		server := grpc.NewServer()
		admissionv1.RegisterAdmissionServiceServer(server, service)
		go func() { _ = server.Serve(lis) }()
		t.Cleanup(server.Stop)
		args = append(args, "-addr", lis.Addr().String())
	}
	require.NoError(t, flags.Parse(args))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o, allowAll) }()
	for range 2 {
		select {
		case who := <-service.seen:
			require.Equal(t, "a Bearer secret", who)
		case <-time.After(within):
			require.FailNow(t, "not connected")
		}
	}
	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(within):
		require.FailNow(t, "it goes on")
	}
}
