package scriptrouter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	jobrouterpb "github.com/spillway-ci/spillway/proto/gitlab/jobrouter"
	runnerrpcpb "github.com/spillway-ci/spillway/proto/gitlab/runnerrpc"
)

// Of the tunnel through WebSockets.
const (
	tunnelProtocol   = "ws-tunnel"
	maxTunnelMessage = 10 << 20 // bytes
	maxAnswer        = 4 << 20  // bytes of a job
)

// Call is one GetJob.
type Call struct {
	At       time.Time
	Metadata metadata.MD
	Body     []byte // the job request
	Request  Request
}

// Request is what a router may want to know of a job request.
type Request struct {
	Token      string `json:"token"`
	SystemID   string `json:"system_id"`
	LastUpdate string `json:"last_update"`
	Info       struct {
		Name     string
		Version  string
		Executor string
		Labels   map[string]string
		Features map[string]bool
	} `json:"info"`
}

// Script is what a router does with calls. The zero value passes them on.
type Script struct {
	Code    codes.Code // ≠ OK: it answers with it
	Garbage bool       // it answers with what is no JSON
	Hold    bool       // it answers when the caller has gone away
}

// Router is a Job Router. Make it with New; it needs no end.
type Router struct {
	jobrouterpb.UnimplementedJobRouterServer
	gitlab string
	mu     struct {
		sync.Mutex
		script Script
		calls  []Call
		left   int
	}
}

// New returns a router before the GitLab at a URL.
func New(gitlab string) *Router { return &Router{gitlab: gitlab} }

// Follow sets what is done with calls from now on.
func (r *Router) Follow(s Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.script = s
}

// Calls returns the calls so far, the oldest first.
func (r *Router) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mu.calls)
}

// Left is how many callers went away while they were held.
func (r *Router) Left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.left
}

// Server returns a gRPC server of it, under both names of the service.
func (r *Router) Server(opts ...grpc.ServerOption) *grpc.Server {
	// GitLab Runner pings every 55 s without a call too; a server that doesn't let it
	// ends the connection.
	policy := keepalive.EnforcementPolicy{MinTime: 20 * time.Second, PermitWithoutStream: true}
	server := grpc.NewServer(append(opts, grpc.KeepaliveEnforcementPolicy(policy))...)
	jobrouterpb.RegisterJobRouterServer(server, r)
	runnerrpcpb.RegisterJobRouterServer(server, old{r: r})
	return server
}

// GetJob implements the service.
func (r *Router) GetJob(ctx context.Context, request *jobrouterpb.GetJobRequest) (*jobrouterpb.GetJobResponse, error) {
	body, err := r.answer(ctx, request.GetJobRequest())
	return &jobrouterpb.GetJobResponse{JobResponse: body}, err
}

// old is the service by the name that 18.8 calls.
type old struct {
	runnerrpcpb.UnimplementedJobRouterServer
	r *Router
}

func (o old) GetJob(ctx context.Context, request *runnerrpcpb.GetJobRequest) (*runnerrpcpb.GetJobResponse, error) {
	body, err := o.r.answer(ctx, request.GetJobRequest())
	return &runnerrpcpb.GetJobResponse{JobResponse: body}, err
}

func (r *Router) answer(ctx context.Context, request []byte) ([]byte, error) {
	call := Call{At: time.Now(), Body: request}
	call.Metadata, _ = metadata.FromIncomingContext(ctx)
	if err := json.Unmarshal(request, &call.Request); err != nil {
		return nil, status.Error(codes.InvalidArgument, "the job request is not JSON")
	}
	r.mu.Lock()
	r.mu.calls = append(r.mu.calls, call)
	script := r.mu.script
	r.mu.Unlock()
	switch {
	case script.Code != codes.OK:
		return nil, status.Error(script.Code, "as the test wants it")
	case script.Garbage:
		return []byte("{"), nil
	case script.Hold:
		<-ctx.Done()
		r.mu.Lock()
		r.mu.left++
		r.mu.Unlock()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return r.pass(ctx, request)
}

// pass asks GitLab, and hands its answer on as it is.
func (r *Router) pass(ctx context.Context, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.gitlab+"/api/v4/jobs/request", bytes.NewReader(body))
	if err != nil {
		return nil, status.Error(codes.Unavailable, "GitLab can't be asked")
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, status.Error(codes.Unavailable, "GitLab does not answer")
	}
	defer func() { _ = response.Body.Close() }()
	if last := response.Header.Get("X-GitLab-Last-Update"); last != "" {
		_ = grpc.SetHeader(ctx, metadata.Pairs("x-gitlab-last-update", last))
	}
	if response.StatusCode != http.StatusCreated {
		return nil, nil
	}
	job, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, status.Error(codes.Unavailable, "GitLab broke off")
	}
	return job, nil
}

// Tunnel serves the router over WebSockets until close is called.
func (r *Router) Tunnel() (handler http.Handler, closeAll func()) {
	server := r.Server()
	conns := &listener{accepted: make(chan net.Conn), done: make(chan struct{})}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(conns) })
	handler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !strings.HasPrefix(request.Header.Get("Authorization"), "Bearer ") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		ws, err := websocket.Accept(w, request, &websocket.AcceptOptions{Subprotocols: []string{tunnelProtocol}})
		if err != nil {
			return // Accept has answered
		}
		ws.SetReadLimit(maxTunnelMessage)
		conns.add(websocket.NetConn(context.Background(), ws, websocket.MessageBinary))
	})
	return handler, func() {
		server.Stop()
		served.Wait()
	}
}

// listener gives a gRPC server the connections of WebSockets.
type listener struct {
	accepted chan net.Conn
	done     chan struct{}
	once     sync.Once
}

func (l *listener) add(conn net.Conn) {
	select {
	case l.accepted <- conn:
	case <-l.done:
		_ = conn.Close()
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	err := errors.New("closed before")
	l.once.Do(func() {
		close(l.done)
		err = nil
	})
	return err
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }
