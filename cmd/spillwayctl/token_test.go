package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

func TestTokenIsSentWithEachCall(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var got []string
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		got = metadata.ValueFromIncomingContext(ctx, "authorization")
		if len(got) == 0 {
			return nil, status.Error(codes.Unauthenticated, "no token and no client certificate")
		}
		return next(ctx, req)
	}))
	adminv1.RegisterAdminServiceServer(s, fakeAdmin{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		s.Stop()
		require.NoError(t, <-served)
	}()
	addr := l.Addr().String()

	code, _, errs := ctl(t, addr, "", "pools")
	require.Equal(t, exitRefused, code)
	require.Contains(t, errs, "not allowed: no token and no client certificate")

	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("token-of-ci-0123456789\n"), 0o600))
	code, _, errs = ctl(t, addr, "", "pools", "--token-file", file)
	require.Equal(t, exitOK, code, errs)
	require.Equal(t, []string{"Bearer token-of-ci-0123456789"}, got)

	for name, content := range map[string]string{"empty": "\n", "two lines": "a\nb\n", "long": strings.Repeat("x", maxTokenBytes+1)} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		code, _, errs = ctl(t, addr, "", "pools", "--token-file", file)
		require.Equal(t, exitUsage, code, name)
		require.Contains(t, errs, "has no token: one line of at most", name)
	}
	code, _, errs = ctl(t, addr, "", "pools", "--token-file", file+".absent")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "--token-file: open ")
}

func TestTokenIsNotSentInPlaintextOverANetwork(t *testing.T) {
	code, _, errs := ctl(t, "192.0.2.1:1", "", "pools", "--plaintext", "--token-file", "any")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "--plaintext to 192.0.2.1:1 would show the token to everybody on the way")
}
