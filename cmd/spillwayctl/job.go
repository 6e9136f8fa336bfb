package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

func (a *app) jobCommand() *cobra.Command {
	c := group("job", "Reach into a running job: a command, its ports, its sockets",
		a.jobFindCommand(), a.jobExecCommand(), a.jobForwardCommand(), a.jobSocketCommand())
	c.Long = `Reach into the environment of a running job, over the connection that its machine has
opened to its control plane: nothing on the machine has to be reachable.

This needs the role debug (--token-file or a client certificate), and a machine whose
agent was started with --debug on. Each session is in the control plane's audit, and ends
with the job, when nothing passes for a while, and at the other limits of the control
plane's debug section.`
	return c
}

func (a *app) jobFindCommand() *cobra.Command {
	return &cobra.Command{
		Use: "find JOB", Short: "Show where a running job is",
		Args: exactly("a job id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.debug.Find, &debugv1.FindRequest{JobId: args[0]})
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) {
					t := newTable(w, "JOB", "ATTEMPT", "POOL", "MACHINE", "REPLICA")
					t.row(args[0], number(resp.GetAttempt()), resp.GetPool(), resp.GetMachineId(), dash(resp.GetReplica()))
					t.flush()
				})
			})
		},
	}
}

// forward is one port that is listened on here for one of the job.
type forward struct{ remote, local int }

// parseForward reads REMOTE[:LOCAL].
func parseForward(text string) (forward, error) {
	remote, local, both := strings.Cut(text, ":")
	if !both {
		local = remote
	}
	f := forward{}
	var errs [2]error
	f.remote, errs[0] = strconv.Atoi(remote)
	f.local, errs[1] = strconv.Atoi(local)
	if errors.Join(errs[:]...) != nil || f.remote < 1 || f.remote > 65535 || f.local < 0 || f.local > 65535 {
		return f, usagef("port %q: write the job's port, or PORT:LOCAL with the one to listen on here (0 = any)", text)
	}
	return f, nil
}

func (a *app) jobForwardCommand() *cobra.Command {
	return &cobra.Command{
		Use: "port-forward JOB PORT[:LOCAL] …", Short: "Listen on this machine's loopback for ports of the job's loopback",
		Long: `Listen on this machine's loopback for ports of a running job's loopback. Each connection
is a session of its own. It goes on until it is interrupted, or the job has ended.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("%s takes a job id and at least one port", nameOf(c))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var forwards []forward
			for _, text := range args[1:] {
				f, err := parseForward(text)
				if err != nil {
					return err
				}
				forwards = append(forwards, f)
			}
			return a.with(func(c client) error {
				if _, err := ask(cmd.Context(), a, c.debug.Find, &debugv1.FindRequest{JobId: args[0]}); err != nil {
					return err
				}
				return a.forwardPorts(cmd.Context(), c, args[0], forwards)
			})
		},
	}
}

func (a *app) forwardPorts(ctx context.Context, c client, job string, forwards []forward) error {
	var listening []listening
	for _, f := range forwards {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(f.local)))
		if err != nil {
			return usagef("cannot listen on port %d here: %v", f.local, err)
		}
		defer func() { _ = l.Close() }() // nobody is served any more
		target := &debugv1.Target{Target: &debugv1.Target_Port{Port: &debugv1.Port{Port: int32(f.remote)}}}
		listening = append(listening, newListening(l, target))
		_, _ = fmt.Fprintf(a.stdout, "%s is port %d of job %s\n", l.Addr(), f.remote, printable(job)) // nobody reads it then
	}
	return a.serveLocal(ctx, c, job, listening)
}

func (a *app) jobSocketCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "socket JOB NAME", Short: "Connect standard input and output, or a unix socket here, to one of the job's",
		Long: `Connect to a unix socket that a running job has made in the directory of its variable
SPILLWAY_SOCKET_DIR: with standard input and output, or with --listen from a unix socket on
this machine, so that a gRPC client can have it as unix:PATH.`,
		Args: exactly("a job id", "a socket's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			target := &debugv1.Target{Target: &debugv1.Target_Socket{Socket: &debugv1.Socket{Name: args[1]}}}
			return a.with(func(c client) error {
				if path == "" {
					s, err := a.openSession(cmd.Context(), c, args[0], target)
					if err != nil {
						return err
					}
					return s.carry(a.stdin, a.stdout, func() {})
				}
				if _, err := ask(cmd.Context(), a, c.debug.Find, &debugv1.FindRequest{JobId: args[0]}); err != nil {
					return err
				}
				l, err := listenPrivately(cmd.Context(), path)
				if err != nil {
					return usagef("--listen: %v", err)
				}
				defer func() { _ = l.Close() }()                                                               // nobody is served any more
				_, _ = fmt.Fprintf(a.stdout, "%s is socket %s of job %s\n", path, args[1], printable(args[0])) // nobody reads it then
				return a.serveLocal(cmd.Context(), c, args[0], []listening{newListening(l, target)})
			})
		},
	}
	cmd.Flags().StringVar(&path, "listen", "", "path of a unix socket to make here, for this user only")
	return cmd
}

// listenPrivately makes a unix socket that nobody else may connect to.
func listenPrivately(ctx context.Context, path string) (net.Listener, error) {
	defer syscall.Umask(syscall.Umask(0o177))
	return new(net.ListenConfig).Listen(ctx, "unix", path)
}

// listening is a listener here and what it stands for.
type listening struct {
	net.Listener
	target *debugv1.Target
}

func newListening(l net.Listener, target *debugv1.Target) listening { return listening{l, target} }

// lookAgain is how often it is looked whether a job still runs.
const lookAgain = 2 * time.Second

// serveLocal serves connections until ctx ends, which is in order, or the job has ended.
func (a *app) serveLocal(ctx context.Context, c client, job string, all []listening) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var serving sync.WaitGroup
	for _, l := range all {
		context.AfterFunc(ctx, func() { _ = l.Close() })
		serving.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					stop(nil) // closed, by us
					return
				}
				serving.Go(func() { a.serveOne(ctx, c, job, l.target, conn) })
			}
		})
	}
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	var ended error
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-look.C:
			_, err := ask(ctx, a, c.debug.Find, &debugv1.FindRequest{JobId: job})
			if code := status.Code(err); code == codes.NotFound || code == codes.FailedPrecondition {
				ended = err
				stop(err)
			}
		}
	}
	serving.Wait()
	return ended
}

// serveOne carries one connection on a session of its own.
func (a *app) serveOne(ctx context.Context, c client, job string, target *debugv1.Target, conn net.Conn) {
	defer func() { _ = conn.Close() }() // its other side has left, or is told so thereby
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	s, err := a.openSession(ctx, c, job, target)
	if err == nil {
		err = s.carry(conn, conn, func() {
			if half, ok := conn.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // its other side has left
			}
		})
	}
	if err != nil && ctx.Err() == nil {
		_, _ = fmt.Fprintln(a.stderr, "spillwayctl:", printable(a.answered(err).Error())) // there is nowhere else to say it
	}
}

// isTerminal is the file behind a stream that is a terminal; nil: it is none.
func isTerminal(stream any, is func(fd int) bool) *os.File {
	if f, ok := stream.(*os.File); ok && is(int(f.Fd())) {
		return f
	}
	return nil
}
