package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	debugv1 "github.com/spillway-ci/spillway/proto/spillway/debug/v1"
)

// interruptGrace is what a command has left when we are interrupted, and pass that on.
const interruptGrace = 5 * time.Second

func (a *app) jobExecCommand() *cobra.Command {
	var tty string
	cmd := &cobra.Command{
		Use: "exec JOB -- COMMAND [ARG …]", Short: "Run a command in a running job's environment",
		Long: `Run a command in a running job's environment: as its user, in its working directory, with
its variables. The command and all that it starts end with the session, and with the job.

The exit code is that of the command, 128 and more if a signal ended it.`,
		Example: "  spillwayctl job exec 1234 -- sh\n  spillwayctl job exec 1234 -- cat build.log",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("%s takes a job id and a command, such as -- sh", nameOf(c))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			terminal, err := a.terminal(tty)
			if err != nil {
				return err
			}
			return a.with(func(c client) error { return a.exec(cmd.Context(), c, args[0], args[1:], terminal) })
		},
	}
	cmd.Flags().StringVar(&tty, "tty", "auto", "give the command a terminal: on, off, or auto (when standard input and output are one)")
	return cmd
}

// terminal is ours, if the command is to have one; a nil File in it: not ours.
func (a *app) terminal(tty string) (*userTerminal, error) {
	in, out := isTerminal(a.stdin, term.IsTerminal), isTerminal(a.stdout, term.IsTerminal)
	switch tty {
	case "on":
	case "off":
		return nil, nil //nolint:nilnil // none is what was asked for
	case "auto":
		if in == nil || out == nil {
			return nil, nil //nolint:nilnil // none is what there is
		}
	default:
		return nil, usagef("--tty %q: use on, off or auto", tty)
	}
	return &userTerminal{in: in, out: out, name: a.getenv("TERM")}, nil
}

// userTerminal is the terminal of whoever runs us.
type userTerminal struct {
	in, out *os.File // nil: not a terminal
	name    string   // TERM
}

// size is nil where there is none.
func (u *userTerminal) size() *debugv1.Size {
	if u.out == nil {
		return nil
	}
	columns, rows, err := term.GetSize(int(u.out.Fd()))
	if err != nil {
		return nil
	}
	return &debugv1.Size{Columns: int32(columns), Rows: int32(rows)}
}

// raw hands every key to the command, until back is called.
func (u *userTerminal) raw() (back func()) {
	if u.in == nil {
		return func() {}
	}
	state, err := term.MakeRaw(int(u.in.Fd()))
	if err != nil {
		return func() {}
	}
	return func() { _ = term.Restore(int(u.in.Fd()), state) } // it is gone, then
}

func (a *app) exec(ctx context.Context, c client, job string, command []string, u *userTerminal) error {
	target := &debugv1.Exec{Command: command}
	if u != nil {
		target.Tty, target.Term, target.Size = true, u.name, u.size()
	}
	s, err := a.openSession(context.WithoutCancel(ctx), c, job, &debugv1.Target{Target: &debugv1.Target_Exec{Exec: target}})
	if err != nil {
		return err
	}
	defer s.cancel()
	if u != nil {
		defer u.raw()()
		defer s.follow(u)()
	}
	defer context.AfterFunc(ctx, func() {
		_ = s.send(&debugv1.Frame{Frame: &debugv1.Frame_Signal{Signal: &debugv1.Signal{Name: "INT"}}}) // or it is over
		time.AfterFunc(interruptGrace, s.cancel)
	})()
	go s.feed(a.stdin)
	return s.print(a.stdout, a.stderr)
}

// follow tells the size of the terminal whenever that changes, until stop is called.
func (s *session) follow(u *userTerminal) (stop func()) {
	changes, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(changes, syscall.SIGWINCH)
	go func() {
		for {
			select {
			case <-changes:
				if size := u.size(); size != nil {
					_ = s.send(&debugv1.Frame{Frame: &debugv1.Frame_Size{Size: size}}) // or it is over
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(changes)
		close(done)
	}
}

// print shows what the command prints, and returns how it ended.
func (s *session) print(stdout, stderr io.Writer) error {
	for {
		f, err := s.rpc.Recv()
		if errors.Is(err, io.EOF) {
			return failedf("the session ended without an exit code")
		} else if err != nil {
			return sessionEnd(err)
		}
		switch f := f.GetFrame().(type) {
		case *debugv1.Frame_Data:
			_, err = stdout.Write(f.Data)
		case *debugv1.Frame_Stderr:
			_, err = stderr.Write(f.Stderr)
		case *debugv1.Frame_Exit:
			if f.Exit.GetCode() == 0 {
				return nil
			}
			return &exitError{int(f.Exit.GetCode()), errors.New("")}
		default:
		}
		if err != nil {
			return failedf("%v", err)
		}
	}
}
