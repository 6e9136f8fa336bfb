package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

func TestA20_ReachIntoARunningJob(t *testing.T) {
	t.Parallel()
	shows(t, "A20")
	s := newDebugStand(t)
	a := s.agent("--debug", "on")
	port := s.serving("serves")

	// By the replica that has the machine, and by the one that has not.
	for name, at := range map[string]*replica{"far": s.far, "near": s.near} {
		out, errs, code := s.exec(at, "typed", "serves", "--", "sh", "-c", "cat file; cat; echo wrong >&2; echo $SPILLWAY_JOB_ID; exit 7")
		require.Equal(t, 7, code, errs)
		require.Equal(t, "made\ntypedserves\n", out, name)
		require.Equal(t, "wrong\n", errs)
		_, errs, code = s.exec(at, "", "serves", "--", "no-such-program")
		require.Equal(t, 127, code, errs)

		forward := s.by("debugger", at, "job", "port-forward", "serves", port+":0")
		address := background(t, forward, regexp.MustCompile(`(127\.0\.0\.1:\d+) is port `+port))
		for range 3 {
			resp, err := http.Get("http://" + address + "/who")
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Contains(t, string(text), "job serves path /who")
		}
		require.NoError(t, forward.Process.Signal(os.Interrupt))
		require.NoError(t, forward.Wait())

		s.callStepRunner(at)
		s.awaitAudit(name, "debug.open", "serves", "exec on machine ", "attempt 1")
		s.awaitAudit(name, "debug.close", "serves", "exec on machine ", "5 bytes to it, ", "all was said")
		s.awaitAudit(name, "debug.close", "serves", "port "+port+" on machine ")
		s.awaitAudit(name, "debug.close", "serves", "socket step-runner on machine ")
	}
	for _, e := range append(s.audit("near"), s.audit("far")...) {
		require.Equal(t, "ann", e.Who)
		require.NotContains(t, e.Detail, "typed")
		require.NotContains(t, e.Detail, "cat file")
	}
	s.overHTTP(port)
	s.onATerminal()
	require.Contains(t, string(s.output(s.near, "job", "find", "serves")), "far")

	require.Empty(t, listens(t, a.Process.Pid), "the machine needs no way in")
	require.NotEmpty(t, listens(t, s.far.Process.Pid), "the look above can see")
	// A caller hears of the end of a session a little before it is counted.
	require.Eventually(t, func() bool { return strings.Contains(s.near.metricsPage(), `spillway_debug_sessions{kind="exec"} 0`) }, within, poll)
	text := s.near.metricsPage()
	require.Regexp(t, `spillway_debug_sessions_ended_total\{how="in_order",kind="exec"\} [1-9]`, text)
	require.Regexp(t, `spillway_debug_bytes_total\{direction="from_job",kind="socket"\} [1-9]`, text)
}

func (s *debugStand) output(at *replica, args ...string) []byte {
	s.t.Helper()
	out, err := s.by("debugger", at, args...).CombinedOutput()
	require.NoError(s.t, err, string(out))
	return out
}

// callStepRunner has a gRPC client speak to the job's socket, by a socket here.
func (s *debugStand) callStepRunner(at *replica) {
	s.t.Helper()
	dir, err := os.MkdirTemp("/tmp", "s")
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := s.by("debugger", at, "job", "socket", "serves", "step-runner", "--listen", dir+"/local")
	background(s.t, socket, regexp.MustCompile(`(is socket step-runner of job serves)`))
	info, err := os.Stat(dir + "/local")
	require.NoError(s.t, err)
	require.Equal(s.t, os.FileMode(0o600), info.Mode().Perm())
	conn, err := grpc.NewClient("unix:"+dir+"/local", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(s.t, err)
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	for range 3 {
		resp, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
		require.NoError(s.t, err)
		require.Equal(s.t, healthv1.HealthCheckResponse_SERVING, resp.GetStatus())
	}
	require.NoError(s.t, conn.Close())
	require.NoError(s.t, socket.Process.Signal(os.Interrupt))
	require.NoError(s.t, socket.Wait())
}

// overHTTP reaches the job's server by near's listen.debug.
func (s *debugStand) overHTTP(port string) {
	s.t.Helper()
	base := "/jobs/serves/proxy/" + port
	code, body := s.get(base+"/who?x=1;y=2", "debugger")
	require.Equal(s.t, http.StatusOK, code, body)
	require.Equal(s.t, `job serves path /who query x=1;y=2 auth "" prefix `+base, body)
	code, body = s.get(base+"/who", "")
	require.Equal(s.t, http.StatusUnauthorized, code, body)
	code, body = s.get(base+"/who", "pusher")
	require.Equal(s.t, http.StatusForbidden, code, body)
	require.Contains(s.t, body, `does not have the role "debug"`)
	code, _ = s.get("/jobs/serves/proxy/0/who", "debugger")
	require.Equal(s.t, http.StatusNotFound, code)
	code, body = s.get("/jobs/nowhere/proxy/80/", "debugger")
	require.Equal(s.t, http.StatusNotFound, code, body)
	require.Contains(s.t, body, "job nowhere is not known")
	code, body = s.get("/jobs/serves/proxy/1/", "debugger")
	require.Equal(s.t, http.StatusConflict, code, body)
	require.Contains(s.t, body, "nothing answers on port 1 of the job's loopback")

	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	bearer := http.Header{"Authorization": {"Bearer a-token-of-debugger"}}
	ws, _, err := websocket.Dial(ctx, "ws://"+s.web+base+"/ws", &websocket.DialOptions{HTTPHeader: bearer}) //nolint:bodyclose // the library's
	require.NoError(s.t, err)
	for i := range 3 {
		text := "message " + strconv.Itoa(i)
		require.NoError(s.t, ws.Write(ctx, websocket.MessageText, []byte(text)))
		_, got, err := ws.Read(ctx)
		require.NoError(s.t, err)
		require.Equal(s.t, text, string(got))
	}
	require.NoError(s.t, ws.Close(websocket.StatusNormalClosure, ""))

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.web+base+"/stream", nil)
	require.NoError(s.t, err)
	req.Header = bearer
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	lines := make([]byte, len("line 0\nline 1\n"))
	_, err = io.ReadFull(resp.Body, lines)
	require.NoError(s.t, err, "it comes as it is written")
	require.Equal(s.t, "line 0\nline 1\n", string(lines))
	require.NoError(s.t, resp.Body.Close())
	s.awaitAudit("near", "debug.close", "serves", "http port "+port)

	req.Header = bearer.Clone()
	req.Header.Set("Origin", "https://elsewhere.example")
	resp, err = http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	require.NoError(s.t, resp.Body.Close())
	require.Equal(s.t, http.StatusForbidden, resp.StatusCode)
}

// onATerminal runs a shell in the job as a person does.
func (s *debugStand) onATerminal() {
	s.t.Helper()
	cmd := s.by("debugger", s.near, "job", "exec", "serves", "--", "sh")
	cmd.Env = append(os.Environ(), "TERM=dumb", "PS1=$ ")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 91, Rows: 33})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = terminal.Close() })
	seen := newOutput(s.t, "terminal")
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(seen.file, terminal)
	}()
	step := func(typed, want string) {
		_, err := io.WriteString(terminal, typed)
		require.NoError(s.t, err)
		require.Eventually(s.t, func() bool { return strings.Contains(seen.String(), want) }, within, poll, "%s: %s", typed, seen)
	}
	step("stty size\n", "33 91")
	require.NoError(s.t, pty.Setsize(terminal, &pty.Winsize{Cols: 101, Rows: 44}))
	require.Eventually(s.t, func() bool {
		_, err := io.WriteString(terminal, "stty size\n")
		require.NoError(s.t, err)
		return strings.Contains(seen.String(), "44 101")
	}, within, 10*poll, "%v", seen)
	// One process that speaks and sleeps: between two of them the shell itself may get the
	// interrupt, and forget it.
	step("sh -c \"echo one''two; exec sleep 1000\"\n", "onetwo")
	step("\x03", "^C") // interrupts the sleep, and neither the shell nor the program
	step("echo still''here\n", "stillhere")
	_, err = io.WriteString(terminal, "exit 5\n")
	require.NoError(s.t, err)
	_ = cmd.Wait()
	require.Equal(s.t, 5, cmd.ProcessState.ExitCode(), "%v", seen)
	_ = terminal.Close()
	<-copied
}

func TestA20_WhoMayAndWhen(t *testing.T) {
	t.Parallel()
	shows(t, "A20")
	s := newDebugStand(t)
	a := s.agent("--debug", "on")
	s.job("runs", "while :; do sleep 0.1; done", "running")

	out, err := s.by("pusher", s.near, "job", "exec", "runs", "--", "true").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), `not allowed: "ci" (by token) does not have the role "debug"`)
	s.awaitAudit("near", "refused", "/spillway.debug.v1.DebugService/Tunnel", `does not have the role "debug"`)
	anonymous, err := s.near.ctl("job", "exec", "runs", "--", "true")
	require.Error(t, err)
	require.Contains(t, anonymous, "no token and no client certificate")

	refused := func(words string, args ...string) {
		t.Helper()
		out, err := s.by("debugger", s.near, args...).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), words)
	}
	refused("job nowhere is not known here", "job", "exec", "nowhere", "--", "true")
	refused("there is no such socket", "job", "socket", "runs", "absent")
	refused("its name is 1 to 64 of", "job", "socket", "runs", "../../x")
	refused("job nowhere is not known here", "job", "port-forward", "nowhere", "80")
	s.awaitAudit("near", "debug.open", "nowhere", "is not known here")

	// Not begun, and ended: nothing changes for the job.
	s.job("over", "true", "completed")
	refused("job over has ended (completed)", "job", "exec", "over", "--", "true")
	s.near.must("--token-file", s.dir+"/pusher", "jobs", "submit", "--id", "never", "--tag", "linux", "--tag", "other", "--script", "true")
	refused("job never has not begun (pending)", "job", "exec", "never", "--", "true")
	s.await("never", "pending")

	// The job's end ends its sessions; what they ran is gone.
	word := fmt.Sprintf("WORD%d.", os.Getpid()) // no other test's begins so
	shell := s.by("debugger", s.near, "job", "exec", "runs", "--", "sh", "-c", "trap '' HUP TERM; echo ready; sleep 1000 #"+word)
	log := newOutput(t, "shell")
	input, err := shell.StdinPipe()
	require.NoError(t, err)
	defer func() { _ = input.Close() }()
	shell.Stdout, shell.Stderr = log.file, log.file
	require.NoError(t, shell.Start())
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "ready") }, within, poll, "%v", log)
	s.near.must("--token-file", s.dir+"/pusher", "jobs", "cancel", "runs")
	_ = shell.Wait()
	require.Equal(t, 4, shell.ProcessState.ExitCode(), "%v", log)
	require.Contains(t, log.String(), "the job has ended")
	require.Eventually(t, func() bool { return !running(t, word) }, within, 5*poll)
	s.awaitAudit("near", "debug.close", "runs", "the job has ended")

	// A machine whose owner has not allowed it.
	require.NoError(t, a.Process.Signal(syscall.SIGTERM))
	_ = a.Wait()
	s.agent()
	s.job("shy", "sleep 1000", "running")
	refused("does not allow it: its agent has to be started with --debug on", "job", "exec", "shy", "--", "true")
}

// running reports whether a process has a word in its command line.
func running(t *testing.T, word string) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range all {
		text, _ := os.ReadFile(path)
		if strings.Contains(string(text), word) && strings.Contains(string(text), "trap") && !strings.Contains(string(text), "spillwayctl") {
			return true
		}
	}
	return false
}
