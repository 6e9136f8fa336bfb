package providers_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers"
)

const socketEnv = "SPILLWAY_HOST_TEST_SOCKET"

// servePlainGRPC serves the same provider without go-plugin and without TLS.
func servePlainGRPC() {
	lis, err := net.Listen("unix", os.Getenv(socketEnv))
	if err != nil {
		panic(err)
	}
	s := grpc.NewServer()
	pluginsdk.Register(s, newTestProvider())
	fmt.Println("ready")
	_ = s.Serve(lis)
}

func plainProvider(b *testing.B) pluginsdk.Provider {
	b.Helper()
	dir, err := os.MkdirTemp("/tmp", "sw")
	require.NoError(b, err)
	socket := filepath.Join(dir, "s")
	self, err := os.Executable()
	require.NoError(b, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"=plain", socketEnv+"="+socket)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	var word string
	_, err = fmt.Fscan(out, &word)
	require.NoError(b, err)
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	return pluginsdk.NewClient(conn)
}

func benchPlugin(b *testing.B) (*providers.Host, providers.Spec) {
	b.Helper()
	dir, err := os.MkdirTemp("/tmp", "sw")
	require.NoError(b, err)
	host, err := providers.NewHost(providers.Options{Dir: dir})
	require.NoError(b, err)
	b.Cleanup(func() {
		_ = host.Close(context.Background())
		_ = os.RemoveAll(dir)
	})
	self, err := os.Executable()
	require.NoError(b, err)
	b.Setenv(roleEnv, "good")
	return host, providers.Spec{Name: "cloud", Path: self, Env: []string{roleEnv}}
}

// BenchmarkPluginCall compares a call through everything (decorators, AutoMTLS,
// the plugin's process) with the same call over plain grpc-go to a process
// without TLS, with the same deadline. Both take turns within one run; ratio is plain time ÷ plugin
// time, 1 being the bound.
func BenchmarkPluginCall(b *testing.B) {
	plain := plainProvider(b)
	host, spec := benchPlugin(b)
	p, err := host.Open(b.Context(), spec)
	require.NoError(b, err)
	group := p.Group("pool", "g")
	ctx := b.Context()
	for name, pair := range map[string][2]func() error{
		"SetDesired": {
			func() error {
				ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
				defer cancel()
				_, err := plain.SetDesired(ctx, pluginsdk.SetDesired{Group: "g", Target: 1, Expected: 1, Token: "01234567890123456789012345"})
				return err
			},
			func() error { _, err := group.SetDesired(ctx, 1, 1); return err },
		},
		"Status": {
			func() error {
				ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
				defer cancel()
				_, err := plain.Status(ctx, []string{"g"})
				return err
			},
			func() error { _, err := group.Status(ctx); return err },
		},
	} {
		b.Run(name, func(b *testing.B) {
			const turn = 100 // calls
			var took [2]time.Duration
			var n int
			for b.Loop() {
				for side, call := range pair {
					began := time.Now()
					for range turn {
						if err := call(); err != nil {
							b.Fatal(err)
						}
					}
					took[side] += time.Since(began)
				}
				n += turn
			}
			b.ReportMetric(float64(took[0].Microseconds())/float64(n), "plain-µs/call")
			b.ReportMetric(float64(took[1].Microseconds())/float64(n), "plugin-µs/call")
			b.ReportMetric(float64(took[0])/float64(took[1]), "ratio")
		})
	}
}

// BenchmarkPluginLaunch is from Open to the first answer.
func BenchmarkPluginLaunch(b *testing.B) {
	host, spec := benchPlugin(b)
	for b.Loop() {
		p, err := host.Open(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Group("pool", "g").Status(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := p.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkPluginRecovery is from kill -9 to the next good answer; the limit is 250 ms
// for the median.
func BenchmarkPluginRecovery(b *testing.B) {
	host, spec := benchPlugin(b)
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		p, err := host.Open(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		group, pid := p.Group("pool", "g"), p.State().PID
		b.StartTimer()
		killed := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			b.Fatal(err)
		}
		for answered := false; !answered || p.State().PID == pid; {
			_, err := group.Status(b.Context())
			answered = err == nil
		}
		took = append(took, time.Since(killed))
		b.StopTimer()
		_ = p.Close(b.Context())
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "median-ms")
}
