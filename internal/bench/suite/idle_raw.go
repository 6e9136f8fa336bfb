package suite

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"runtime/debug"

	"github.com/spillway-ci/spillway/internal/bench/child"
)

// rawRole is a server with a goroutine for each connection, and nothing behind it: what
// a connection costs at the least.
const rawRole = "raw-server"

// rawBuffer is what such a goroutine reads into [bytes].
const rawBuffer = 512

// startRaw starts it, with TLS as the how says, and returns where it listens.
func startRaw(ctx context.Context, dir, how string) (*child.Process, string, error) {
	p, err := child.Start(rawRole, dir, how)
	if err != nil {
		return nil, "", err
	}
	addr, err := p.Hear(ctx, "listening")
	if err != nil {
		p.Stop()
		return nil, "", err
	}
	return p, addr, nil
}

// runRaw is the child: DIR HOW.
func runRaw(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("a child needs a folder and how to listen, got %q", args)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if args[1] == overTLS {
		config, err := rawTLS(args[0])
		if err != nil {
			return err
		}
		l = tls.NewListener(l, config)
	}
	go acceptRaw(l)
	child.Answer("listening", l.Addr())
	return child.Orders(func(order string, words []string) error {
		if order != "settle" {
			return fmt.Errorf("unknown order %s %q", order, words)
		}
		debug.FreeOSMemory() // what is left is the least
		child.Answer("settled")
		return nil
	})
}

func rawTLS(dir string) (*tls.Config, error) {
	a, err := openAuthority(dir)
	if err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, serverCert), filepath.Join(dir, serverKey))
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{own}, ClientCAs: a.pool(), ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
	}, nil
}

func acceptRaw(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			buffer := make([]byte, rawBuffer)
			for {
				if _, err := conn.Read(buffer); err != nil {
					return
				}
			}
		}()
	}
}
