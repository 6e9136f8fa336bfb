package shell

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// markName is the environment variable by which a run finds its processes again,
// also those that left its process group.
const markName = "SPILLWAY_RUN"

// Run runs spec's script, calls onStart once it runs, with where it does, and returns
// when it has ended and nothing of it is left. When ctx ends, the script is stopped: SIGTERM
// to its process group, SIGKILL to what is left after spec.Grace.
//
// An error means that the script was not started; ErrInvalid, that it never will
// be.
func Run(ctx context.Context, spec Spec, onStart func(*Place)) (Outcome, error) {
	if err := spec.validate(); err != nil {
		return Outcome{}, err
	}
	dir, err := makeWorkDir(spec.Parent, spec.Script)
	if err != nil {
		return Outcome{}, err
	}
	var sockets *socketDir
	if spec.Sockets {
		if sockets, err = makeSocketDir(dir); err != nil {
			return finish(Outcome{}, err, dir.remove())
		}
	}
	mark := rand.Text()
	place := newPlace(dir, environment(dir, sockets, spec.Env, mark), sockets)
	out, err := runIn(ctx, place, mark, &spec, onStart)
	return finish(out, err, errors.Join(place.remove(), dir.remove()))
}

func finish(out Outcome, err, cleanUp error) (Outcome, error) {
	if err != nil {
		return Outcome{}, errors.Join(err, cleanUp)
	}
	out.CleanUp = cleanUp
	return out, nil
}

func runIn(ctx context.Context, place *Place, mark string, spec *Spec, onStart func(*Place)) (Outcome, error) {
	dir := place.dir
	output, err := newOutput(dir, spec.LogFile)
	if err != nil {
		return Outcome{}, err
	}
	cmd := exec.Command("/bin/sh", dir.script())
	cmd.Dir = dir.project()
	cmd.Env = place.env
	cmd.Stdout, cmd.Stderr = output.pipe, output.pipe
	cmd.SysProcAttr = ownGroup()

	// The kernel ends the script when the thread that started it ends
	// (PR_SET_PDEATHSIG), so that thread must stay as long as the script does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		output.abandon()
		return Outcome{}, fmt.Errorf("start the script: %w", err)
	}
	output.follow()
	onStart(place)

	cause := await(ctx, cmd.Process.Pid, sign{markName + "=" + mark, dir.root}, spec, place.close)
	exitCode := reap(cmd)
	if cause == TimedOut {
		exitCode = TimedOutExitCode
	}
	last, dropped := output.finish()
	return Outcome{Cause: cause, ExitCode: exitCode, Output: last, Dropped: dropped}, nil
}

// environment is all that a script sees: its own variables over a minimal set,
// and nothing of this process, which holds the runner's token.
func environment(dir *workDir, sockets *socketDir, own []string, mark string) []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	env := []string{
		"PATH=" + path, "HOME=" + dir.project(), "TMPDIR=" + dir.tmp(),
		"SHELL=/bin/sh", "LANG=C.UTF-8", "CI_PROJECT_DIR=" + dir.project(),
	}
	env = append(env, own...)
	if sockets != nil {
		env = append(env, SocketDirName+"="+sockets.path)
	}
	return append(env, markName+"="+mark)
}

// await returns when the script has ended and none of its processes is left. The
// script itself is not reaped yet: until then its process id, which is its
// group's too, can't be given to anybody else. closing is called before what is left is
// looked for.
func await(ctx context.Context, pid int, ours sign, spec *Spec, closing func()) Cause {
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		awaitExit(pid)
	}()
	limit := time.NewTimer(spec.Timeout)
	defer limit.Stop()

	cause := Exited
	select {
	case <-exited:
	case <-limit.C:
		cause = TimedOut
	case <-ctx.Done():
		cause = Stopped
	}
	if cause != Exited {
		terminateGroup(pid)
		awaitGroupEnd(pid, exited, spec.Grace)
	}
	closing()
	killGroup(pid)
	killMarked(pid, ours)
	<-exited
	return cause
}

// awaitGroupEnd waits until the group has no process that still runs, at most
// for grace. The script alone is not enough: sh ends at SIGTERM, while what it
// called may still be putting things in order.
func awaitGroupEnd(pid int, exited <-chan struct{}, grace time.Duration) {
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	select {
	case <-exited:
	case <-deadline.C:
		return
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for groupRuns(pid) {
		select {
		case <-look.C:
		case <-deadline.C:
			return
		}
	}
}

// reap collects the script's end and returns its exit code as a shell would say it.
func reap(cmd *exec.Cmd) int {
	_ = cmd.Wait() // an exit code other than 0 is an error here, and no error of ours
	return exitCode(cmd.ProcessState)
}

// output is the way from the script's stdout and stderr to the tail and the log.
type output struct {
	pipe *os.File // the script's end
	from *os.File // ours
	log  *os.File // nil without
	tail tail
	done chan struct{}
}

func newOutput(dir *workDir, withLog bool) (*output, error) {
	o := &output{tail: tail{limit: OutputTailBytes}, done: make(chan struct{})}
	if withLog {
		log, err := os.OpenFile(dir.log(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, fmt.Errorf("make the log file: %w", err)
		}
		o.log = log
	}
	from, pipe, err := os.Pipe()
	if err != nil {
		o.closeLog()
		return nil, fmt.Errorf("make the output pipe: %w", err)
	}
	o.from, o.pipe = from, pipe
	return o, nil
}

// follow starts reading. Our copy of the script's end is closed, so that reading
// ends when the last process of the script has ended.
func (o *output) follow() {
	_ = o.pipe.Close()
	var to io.Writer = &o.tail
	if o.log != nil {
		to = io.MultiWriter(&o.tail, &capped{w: o.log, left: MaxLogBytes})
	}
	go func() {
		defer close(o.done)
		_, _ = io.Copy(to, o.from) // ends at the last process's end, or at finish's deadline
	}()
}

func (o *output) finish() (last []byte, dropped int64) {
	_ = o.from.SetReadDeadline(time.Now().Add(drainOutputWithin))
	<-o.done
	_ = o.from.Close()
	o.closeLog()
	return o.tail.bytes()
}

func (o *output) abandon() {
	_ = o.pipe.Close()
	_ = o.from.Close()
	o.closeLog()
}

func (o *output) closeLog() {
	if o.log != nil {
		_ = o.log.Close()
	}
}
