package jobrouter

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway/gitlab"
)

// serveEnv makes the test binary a job router, so that its memory is its own.
const serveEnv = "SPILLWAY_TEST_SERVE_JOBROUTER"

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) != "" {
		if err := serveAlone(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveAlone serves until its input ends, and tells its memory for each line of it.
func serveAlone() error {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	desk, err := NewDesk(Options{
		Replica: "alone", LongPoll: time.Hour, Tokens: testTokens(), Leases: newFakeLeases(), Book: newFakeBook(),
		GitLab: nothingThere{}, Contacts: &fakeContacts{},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = desk.Run(ctx) }() // always nil
	server := grpc.NewServer(ServerOptions(nil)...)
	NewService(desk).Register(server)
	go func() { _ = server.Serve(lis) }() // it ends with the process
	fmt.Println(lis.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		debug.FreeOSMemory()
		rss, err := residentBytes()
		if err != nil {
			return err
		}
		fmt.Println(desk.waiting.Load(), rss, runtime.NumGoroutine())
	}
	return nil
}

// nothingThere is a GitLab without jobs, which remembers nothing either.
type nothingThere struct{ *fakeGitLab }

func (nothingThere) RequestJob(context.Context, []byte, http.Header) (gitlab.JobAnswer, error) {
	return gitlab.JobAnswer{Status: 204, LastUpdate: "v1"}, nil
}

func residentBytes() (int64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// alone is a job router in a process of its own.
type alone struct {
	t       testing.TB
	address string
	in      io.Writer
	out     *bufio.Reader
}

func startAlone(t testing.TB) *alone {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"=1", "GOMEMLIMIT=", "GOGC=100")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // it ends with its input
		require.NoError(t, cmd.Wait())
	})
	a := &alone{t: t, in: in, out: bufio.NewReader(out)}
	address, err := a.out.ReadString('\n')
	require.NoError(t, err)
	a.address = strings.TrimSpace(address)
	return a
}

func (a *alone) look() (waiting, resident, goroutines int) {
	a.t.Helper()
	_, err := fmt.Fprintln(a.in)
	require.NoError(a.t, err)
	line, err := a.out.ReadString('\n')
	require.NoError(a.t, err)
	_, err = fmt.Sscan(line, &waiting, &resident, &goroutines)
	require.NoError(a.t, err)
	return waiting, resident, goroutines
}

// hold opens calls, each on a connection of its own as runners on different machines
// have it, and returns when all wait.
func (a *alone) hold(ctx context.Context, calls int) {
	a.t.Helper()
	for i := range calls {
		conn, err := grpc.NewClient("passthrough:///"+a.address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(bearerOf(testToken)),
			grpc.WithReadBufferSize(0), grpc.WithWriteBufferSize(4<<10))
		require.NoError(a.t, err)
		a.t.Cleanup(func() { _ = conn.Close() })
		go getJob(ctx, conn, requestBody(fmt.Sprintf("s_%012d", i), "first", runnerFeatures()))
	}
	require.Eventually(a.t, func() bool { waiting, _, _ := a.look(); return waiting == calls }, time.Minute, 100*time.Millisecond)
}

// TestTwoThousandOpenCallsAreCheap holds the promise of 100 MB for 2,000 calls.
func TestTwoThousandOpenCallsAreCheap(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's own memory would be measured")
	}
	const calls = 2_000
	a := startAlone(t)
	_, idle, _ := a.look()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a.hold(ctx, calls)
	_, held, goroutines := a.look()
	t.Logf("%d calls: %.1f MB above idle, %.1f KiB and %.1f goroutines each",
		calls, float64(held-idle)/1e6, float64(held-idle)/1024/calls, float64(goroutines)/calls)
	require.Less(t, held-idle, 100_000_000)
}

func BenchmarkOpenCall(b *testing.B) {
	a := startAlone(b)
	_, idle, _ := a.look()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a.hold(ctx, b.N)
	_, held, _ := a.look()
	b.ReportMetric(float64(held-idle)/float64(b.N), "B/call")
}
