package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// jobPort makes this program the one that a job of the tests runs: an HTTP server on that
// port of loopback and a gRPC server on its socket "step-runner", until it is ended.
const jobPort = "SPILLWAY_TEST_JOB_PORT"

func init() {
	if port := os.Getenv(jobPort); port != "" {
		fmt.Fprintln(os.Stderr, serveAsJob(port))
		os.Exit(1)
	}
}

func serveAsJob(port string) error {
	socket, err := net.Listen("unix", filepath.Join(os.Getenv("SPILLWAY_SOCKET_DIR"), "step-runner"))
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	healthv1.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(socket) }()

	mux := http.NewServeMux()
	mux.HandleFunc("/who", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "job %s path %s query %s auth %q prefix %s", os.Getenv("SPILLWAY_JOB_ID"), r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Authorization"), r.Header.Get("X-Forwarded-Prefix"))
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		for i := 0; r.Context().Err() == nil; i++ {
			_, _ = fmt.Fprintf(w, "line %d\n", i)
			w.(http.Flusher).Flush()
			<-time.After(50 * time.Millisecond)
		}
	})
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			return
		}
		defer c.CloseNow() //nolint:errcheck // it is the end
		for {
			kind, text, err := c.Read(context.Background())
			if err != nil || c.Write(context.Background(), kind, text) != nil {
				return
			}
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	return http.Serve(l, mux) //nolint:gosec // for one test
}
