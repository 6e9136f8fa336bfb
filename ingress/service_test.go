package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

func TestASessionIsInTheAudit(t *testing.T) {
	opened := make(chan *fakeTunnel, 1)
	s, audit := newService(t, newBoard(recordOf("1", spillway.Running)), here(opened), Limits{})
	c := newFakeCaller(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ann(t.Context()), execRequest("1"), c) }()
	o := (<-c.hears).GetOpened()
	require.Equal(t, "m linux 2 r1", fmt.Sprint(o.GetMachineId(), " ", o.GetPool(), " ", o.GetAttempt(), " ", o.GetReplica()))
	tunnel := <-opened
	c.says <- data(3)
	<-tunnel.up
	tunnel.down <- data(4)
	<-c.hears
	tunnel.down <- exit(1)
	<-c.hears
	require.NoError(t, <-ended)
	e := audit.all()
	require.Len(t, e, 2)
	require.Equal(t, access.Entry{Action: "debug.open", Object: "1", Detail: "exec on machine m of pool linux, attempt 2", OK: true}, e[0])
	require.Equal(t, "debug.close", e[1].Action)
	require.True(t, e[1].OK)
	require.Regexp(t, `^exec on machine m of pool linux, attempt 2: 3 bytes to it, 4 bytes from it, \S+: all was said$`, e[1].Detail)
	require.Equal(t, []string{"ann", "ann"}, audit.who)
}

// What can't be changes nothing, takes no seat, and is in the audit.
func TestWhatCannotBe(t *testing.T) {
	b := newBoard(recordOf("ended", spillway.Completed), recordOf("waits", spillway.Pending), recordOf("assigned", spillway.Assigned), recordOf("1", spillway.Running))
	var fails error
	s, audit := newService(t, b, func(spillway.JobID, *debugv1.Target) (Tunnel, error) { return nil, fails }, Limits{MaxSessions: 1})
	for _, c := range []struct {
		job   string
		fails error
		code  codes.Code
		says  string
	}{
		{"unknown", nil, codes.NotFound, "job unknown is not known here"},
		{"ended", nil, codes.FailedPrecondition, "job ended has ended (completed)"},
		{"waits", nil, codes.FailedPrecondition, "job waits has not begun (pending)"},
		{"assigned", nil, codes.FailedPrecondition, "job assigned has not begun (assigned)"},
		{"", nil, codes.InvalidArgument, "1 to 128 bytes"},
		{strings.Repeat("x", 129), nil, codes.InvalidArgument, "1 to 128 bytes"},
		{"1", status.Error(codes.FailedPrecondition, "not allowed there"), codes.FailedPrecondition, "not allowed there"},
		{"1", ErrElsewhere, codes.Unavailable, "machine m, which has job 1, has no connection to a router now"},
	} {
		before := len(audit.all())
		fails = c.fails
		_, err := s.begin(ann(t.Context()), execRequest(c.job))
		require.Equal(t, c.code, status.Code(err), c.says)
		require.ErrorContains(t, err, c.says)
		e := audit.all()[before:]
		require.Len(t, e, 1)
		require.False(t, e[0].OK)
		require.Contains(t, e[0].Detail, c.says)
	}
	b.replica = "r2"
	_, err := s.begin(ann(t.Context()), execRequest("1"))
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "replica r2, which does not say how other replicas reach it (debug.advertise): call that replica itself")
	b.err = errors.New("away")
	_, err = s.begin(ann(t.Context()), execRequest("1"))
	require.ErrorIs(t, err, errStore)
	s.Close()
}

func TestWhoIsNobodyGetsNothing(t *testing.T) {
	s, _ := newService(t, newBoard(recordOf("1", spillway.Running)), here(nil), Limits{})
	pusher := access.With(t.Context(), access.Identity{Name: "ci", Roles: []access.Role{access.Push}})
	for ctx, code := range map[context.Context]codes.Code{t.Context(): codes.Unauthenticated, pusher: codes.PermissionDenied, access.With(t.Context(), access.Open()): codes.PermissionDenied} {
		_, err := s.Find(ctx, &debugv1.FindRequest{JobId: "1"})
		require.Equal(t, code, status.Code(err))
		require.Equal(t, code, status.Code(s.Tunnel(stream{fakeCaller: newFakeCaller(ctx)})))
	}
	found, err := s.Find(ann(t.Context()), &debugv1.FindRequest{JobId: "1"})
	require.NoError(t, err)
	require.Equal(t, "m", found.GetMachineId())
}

// stream is a fakeCaller as gRPC has it.
type stream struct {
	grpc.ServerStream
	*fakeCaller
}

func (s stream) Context() context.Context      { return s.ctx }
func (s stream) Send(f *debugv1.Frame) error   { return s.fakeCaller.Send(f) }
func (s stream) Recv() (*debugv1.Frame, error) { return s.fakeCaller.Recv() }
func (s stream) SetTrailer(metadata.MD)        {}

func TestTheFirstFrame(t *testing.T) {
	many := make([]string, MaxArgs+1)
	many[0] = "x"
	execOf := func(args ...string) *debugv1.Target {
		return &debugv1.Target{Target: &debugv1.Target_Exec{Exec: &debugv1.Exec{Command: args}}}
	}
	socketOf := func(name string) *debugv1.Target {
		return &debugv1.Target{Target: &debugv1.Target_Socket{Socket: &debugv1.Socket{Name: name}}}
	}
	portOf := func(n int32) *debugv1.Target {
		return &debugv1.Target{Target: &debugv1.Target_Port{Port: &debugv1.Port{Port: n}}}
	}
	for name, c := range map[string]struct {
		target *debugv1.Target
		ok     bool
	}{
		"a command": {execOf("x"), true}, "no command": {execOf(), false}, "an empty one": {execOf(""), false},
		"words at the edge": {execOf(many[:MaxArgs]...), true}, "too many words": {execOf(many...), false},
		"bytes at the edge": {execOf(strings.Repeat("x", MaxArgsBytes)), true}, "too many bytes": {execOf(strings.Repeat("x", MaxArgsBytes), "x"), false},
		"a port": {portOf(1), true}, "the last port": {portOf(65535), true}, "port 0": {portOf(0), false}, "port 65536": {portOf(65536), false},
		"a socket": {socketOf("step-runner_1"), true}, "64 bytes": {socketOf(strings.Repeat("a", 64)), true}, "65 bytes": {socketOf(strings.Repeat("a", 65)), false},
		"a path": {socketOf("../x"), false}, "no name": {socketOf(""), false}, "nothing": {&debugv1.Target{}, false}, "nil": {nil, false},
		"a terminal":  {&debugv1.Target{Target: &debugv1.Target_Exec{Exec: &debugv1.Exec{Command: []string{"x"}, Term: "xterm-256color"}}}, true},
		"no terminal": {&debugv1.Target{Target: &debugv1.Target_Exec{Exec: &debugv1.Exec{Command: []string{"x"}, Term: "a b"}}}, false},
	} {
		err := checkTarget(&debugv1.Open{JobId: "1", Target: c.target})
		require.Equal(t, c.ok, err == nil, "%s: %v", name, err)
		if err != nil {
			require.Equal(t, codes.InvalidArgument, status.Code(err), name)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		_, err := firstFrame(stream{fakeCaller: newFakeCaller(ctx)})
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		require.ErrorContains(t, err, "no open within 10s")
		c := newFakeCaller(ctx)
		go func() { c.says <- data(1) }()
		_, err = firstFrame(stream{fakeCaller: c})
		require.ErrorContains(t, err, "must be an open")
	})
}

func TestSeatsAtTheirEdge(t *testing.T) {
	s := newSeats(Limits{MaxSessions: 3, MaxPerJob: 2})
	one, err := s.take("a")
	require.NoError(t, err)
	_, err = s.take("a")
	require.NoError(t, err)
	_, err = s.take("a")
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "debug.max_sessions_per_job")
	_, err = s.take("b")
	require.NoError(t, err)
	_, err = s.take("c")
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "(debug.max_sessions)")
	one()
	one()
	_, err = s.take("a")
	require.NoError(t, err, "one has left, once")
	_, err = s.take("c")
	require.Error(t, err)
}

func TestSeatsCountRight(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := newSeats(Limits{MaxSessions: 5, MaxPerJob: 2})
		open := map[spillway.JobID][]func(){}
		all := 0
		for range rapid.IntRange(0, 60).Draw(r, "steps") {
			job := spillway.JobID(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(r, "job"))
			if rapid.Bool().Draw(r, "leave") && len(open[job]) > 0 {
				open[job][0]()
				open[job] = open[job][1:]
				all--
				continue
			}
			leave, err := s.take(job)
			if want := all < 5 && len(open[job]) < 2; want != (err == nil) {
				r.Fatalf("%d in all, %d of %s: %v", all, len(open[job]), job, err)
			}
			if err == nil {
				open[job] = append(open[job], leave)
				all++
			}
		}
	})
}

func TestCloseEndsSessions(t *testing.T) {
	opened := make(chan *fakeTunnel, 1)
	s, audit := newService(t, newBoard(recordOf("1", spillway.Running)), here(opened), Limits{})
	c := newFakeCaller(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ann(t.Context()), execRequest("1"), c) }()
	<-c.hears
	s.Close()
	require.Len(t, audit.all(), 2, "its end is in the audit before Close returns")
	require.ErrorIs(t, <-ended, errShutDown)
	require.ErrorIs(t, s.serve(ann(t.Context()), execRequest("1"), c), errShutDown)
}

// lines are listeners by address, for a bubble: a network is outside.
type lines struct {
	mu sync.Mutex
	at map[string]*bufconn.Listener
}

func (l *lines) listen(address string) net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at[address] = bufconn.Listen(1 << 16)
	return l.at[address]
}

func (l *lines) dial(ctx context.Context, address string) (net.Conn, error) {
	l.mu.Lock()
	to := l.at[address]
	l.mu.Unlock()
	return to.DialContext(ctx)
}

// replicas are two Services on one store, of which r2 has the machine and serves gRPC. They
// are for a bubble, where only who waits lets time pass: a ticket is good for a moment.
func replicas(t *testing.T) (near *Service, nearAudit, farAudit *kept, opened chan *fakeTunnel, conn *grpc.ClientConn, all *lines) {
	t.Helper()
	b := newBoard(recordOf("1", spillway.Running), recordOf("2", spillway.Running))
	b.replica = "r2"
	all = &lines{at: map[string]*bufconn.Listener{}}
	const address = "r2:1"
	l := all.listen(address)
	opened = make(chan *fakeTunnel, 8)
	nearAudit, farAudit = &kept{}, &kept{}
	plain := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(all.dial)}
	near, err := New(Options{Replica: "r1", Machines: machines(func(spillway.JobID, *debugv1.Target) (Tunnel, error) { return nil, ErrElsewhere }), Store: b, Audit: nearAudit, Advertise: func() string { return "" }, Dial: plain})
	require.NoError(t, err)
	far, err := New(Options{Replica: "r2", Machines: here(opened), Store: b, Audit: farAudit, Advertise: func() string { return address }})
	require.NoError(t, err)
	server := grpc.NewServer()
	debugv1.RegisterDebugServiceServer(server, far)
	go func() { _ = server.Serve(l) }()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		far.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		near.Close()
		far.Close()
		server.Stop()
		<-done
	})
	require.Eventually(t, func() bool { _, found, _ := b.Board(ctx, boardOf("r2")); return found }, patience, time.Millisecond)
	conn, err = grpc.NewClient("passthrough:///"+address, plain...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return near, nearAudit, farAudit, opened, conn, all
}

func TestASessionByAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, nearAudit, farAudit, opened, _, _ := replicas(t)
		c := newFakeCaller(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- near.serve(ann(t.Context()), execRequest("1"), c) }()
		require.Equal(t, "m", (<-c.hears).GetOpened().GetMachineId())
		tunnel := <-opened
		c.says <- data(3)
		require.Len(t, (<-tunnel.up).GetData(), 3)
		tunnel.down <- exit(9)
		require.Equal(t, int32(9), (<-c.hears).GetExit().GetCode())
		require.NoError(t, <-ended)
		require.Len(t, nearAudit.all(), 2)
		require.Empty(t, farAudit.all(), "the person has called the other one")

		// Whatever the far one says comes through as it said it.
		go func() { ended <- near.serve(ann(t.Context()), execRequest("1"), c) }()
		<-c.hears
		(<-opened).Close(status.Error(codes.Aborted, "the job has ended"))
		err := <-ended
		require.Equal(t, codes.Aborted, status.Code(err))
		require.ErrorContains(t, err, "the job has ended")
	})
}

// forgetful is a store that loses what is published.
type forgetful struct{ Store }

func (forgetful) PublishFact(context.Context, string, []byte) error { return nil }

// A person who is let in is not told to prove who it is because another replica has not
// heard of the ticket, or does not know this one.
func TestWhatReplicasRefuseEachOtherIsNotThePersonsFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, nearAudit, _, _, _, all := replicas(t)
		near.opt.Store = forgetful{near.opt.Store}
		var told []error
		near.opt.Events.Unreachable = func(_ string, err error) { told = append(told, err) }
		_, err := near.begin(ann(t.Context()), execRequest("1"))
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.ErrorContains(t, err, "replica r2, which replica r1 can't reach")
		require.Len(t, told, 1)
		require.ErrorContains(t, told[0], "no ticket")
		require.Len(t, nearAudit.all(), 1)

		for _, code := range []codes.Code{codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented, codes.ResourceExhausted} {
			s := grpc.NewServer(grpc.StreamInterceptor(func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error {
				return status.Error(code, "of the way there")
			}))
			debugv1.RegisterDebugServiceServer(s, debugv1.UnimplementedDebugServiceServer{})
			address := code.String()
			l := all.listen(address)
			go func() { _ = s.Serve(l) }()
			t.Cleanup(s.Stop)
			require.NoError(t, near.opt.Store.PutBoard(t.Context(), boardOf("r2"), advertiseEpoch, []byte(address), advertiseFor))
			_, err = near.begin(ann(t.Context()), execRequest("1"))
			require.Equal(t, codes.Unavailable, status.Code(err), code)
			require.NotContains(t, err.Error(), "of the way there")
		}
	})
}

// Only a replica can have somebody let in, once, for one job, and only with the role.
func TestTicketsCannotBeMadeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, _, _, opened, conn, _ := replicas(t)
		relay := func(ctx context.Context, number, job string) error {
			if number != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, metaTicket, number)
			}
			rpc, err := debugv1.NewDebugServiceClient(conn).Relay(ctx)
			require.NoError(t, err)
			_ = rpc.Send(&debugv1.Frame{Frame: &debugv1.Frame_Open{Open: &debugv1.Open{JobId: job, Target: execRequest("1").target}}})
			_, err = rpc.Recv()
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		require.Equal(t, codes.Unauthenticated, status.Code(relay(ctx, "", "1")))
		require.Equal(t, codes.Unauthenticated, status.Code(relay(ctx, "made-up", "1")))

		number, err := near.issue(ann(ctx), "r2", "1")
		require.NoError(t, err)
		require.Equal(t, codes.Unauthenticated, status.Code(relay(ctx, hashed(number), "1")), "what the store shows is no ticket")
		require.NoError(t, relay(ctx, number, "1"))
		<-opened
		require.Equal(t, codes.Unauthenticated, status.Code(relay(ctx, number, "1")), "it is for one use")

		number, err = near.issue(ann(ctx), "r2", "1")
		require.NoError(t, err)
		require.Equal(t, codes.PermissionDenied, status.Code(relay(ctx, number, "2")), "it is for one job")

		number, err = near.issue(access.With(ctx, access.Identity{Name: "ci", Roles: []access.Role{access.Push}}), "r2", "1")
		require.NoError(t, err)
		require.Equal(t, codes.PermissionDenied, status.Code(relay(ctx, number, "1")))
		_, err = near.issue(ctx, "r2", "1")
		require.Equal(t, codes.Unauthenticated, status.Code(err), "nobody is nobody")
	})
}

func TestTicketsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := func(n int) []byte {
			b, err := json.Marshal(ticket{Number: hashed(fmt.Sprint(n)), Job: "1", Who: access.Identity{Name: "ann"}})
			require.NoError(t, err)
			return b
		}
		redeem := func(kept *tickets, n int) error {
			_, err := kept.redeem(metadata.NewIncomingContext(t.Context(), metadata.Pairs(metaTicket, fmt.Sprint(n))), "1")
			return err
		}
		kept := newTickets()
		kept.add(text(1), time.Now())
		kept.add(text(2), time.Now())
		kept.add([]byte("{"), time.Now())
		time.Sleep(ticketFor)
		require.NoError(t, redeem(kept, 1))
		time.Sleep(time.Millisecond)
		require.ErrorIs(t, redeem(kept, 2), errTicket)
		// The word may come after the call.
		go func() {
			time.Sleep(ticketWithin - time.Millisecond)
			kept.add(text(3), time.Now())
		}()
		require.NoError(t, redeem(kept, 3))

		for n := range maxTickets + 1 {
			kept.add(text(n), time.Now())
		}
		require.NoError(t, redeem(kept, maxTickets-1))
		require.ErrorIs(t, redeem(kept, maxTickets), errTicket, "there was no room")
		time.Sleep(ticketFor + time.Second)
		kept.add(text(maxTickets+1), time.Now())
		kept.add(text(maxTickets+2), time.Now())
		require.NoError(t, redeem(kept, maxTickets+2), "what is over makes room")
	})
}

func TestPathsOfTheProxy(t *testing.T) {
	for path, want := range map[string]place{
		"/jobs/1/proxy/80":                  {"1", 80, "/jobs/1/proxy/80", ""},
		"/jobs/1/proxy/80/":                 {"1", 80, "/jobs/1/proxy/80", "/"},
		"/jobs/a%2Fb/proxy/8080//x/../y%2F": {"a/b", 8080, "/jobs/a%2Fb/proxy/8080", "//x/../y%2F"},
		"/jobs/1/proxy/65535/proxy/1":       {"1", 65535, "/jobs/1/proxy/65535", "/proxy/1"},
	} {
		got, ok := parse(path)
		require.True(t, ok, path)
		require.Equal(t, want, got)
	}
	for _, path := range []string{"", "/", "/jobs", "/jobs/1", "/jobs/1/proxy", "/jobs//proxy/80/", "/jobs/1/proxy/", "/jobs/1/proxy/0/", "/jobs/1/proxy/65536/", "/jobs/1/proxy/080/", "/jobs/1/proxy/+80/", "/jobs/1/other/80/", "/x/jobs/1/proxy/80/"} {
		_, ok := parse(path)
		require.False(t, ok, path)
	}
}

func TestOtherSitesRequestsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, method string
		header       map[string]string
		ok           bool
	}{
		{"a program", http.MethodPost, nil, true},
		{"a typed address", http.MethodGet, map[string]string{"Sec-Fetch-Site": "none"}, true},
		{"its own page", http.MethodPost, map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://debug.example"}, true},
		{"a link from elsewhere", http.MethodGet, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, true},
		{"a form from elsewhere", http.MethodPost, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, false},
		{"a script from elsewhere", http.MethodGet, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, false},
		{"a neighbour", http.MethodGet, map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, false},
		{"a WebSocket from elsewhere", http.MethodGet, map[string]string{"Origin": "http://elsewhere.example"}, false},
		{"nobody's origin", http.MethodGet, map[string]string{"Origin": "null"}, false},
	} {
		r := httptest.NewRequest(c.method, "http://debug.example/jobs/1/proxy/80/", nil)
		for name, value := range c.header {
			r.Header.Set(name, value)
		}
		require.Equal(t, c.ok, foreign(r) == "", c.name)
	}
}

// What a proxied request is answered with that did not come to the job's server, or not back.
func TestHowTheProxyRefuses(t *testing.T) {
	late := &net.OpError{Op: "read", Net: "pipe", Err: os.ErrDeadlineExceeded}
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{status.Error(codes.Aborted, "the job has ended"), http.StatusBadGateway, "did not answer in order"},
		{io.ErrUnexpectedEOF, http.StatusBadGateway, "did not answer in order"},
		{fmt.Errorf("dial: %w", errStore), http.StatusServiceUnavailable, "the store"},
		{late, http.StatusGatewayTimeout, "did not begin its answer within 1m0s"},
	} {
		w := httptest.NewRecorder()
		refuse(w, c.err)
		require.Equal(t, c.code, w.Code)
		require.Contains(t, w.Body.String(), c.says)
	}
}
