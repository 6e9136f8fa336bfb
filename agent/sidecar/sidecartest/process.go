package sidecartest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// role is the first argument of a process that is a stand-in.
const role = "stand-in-for-gitlab-runner"

// The files by which a test and the process talk.
const (
	pidName         = "pid"
	jobsName        = "jobs"
	contentName     = "content"
	stayName        = "stay"
	storyName       = "story"
	environmentName = "environment"
)

// Main makes this process a stand-in, if it was started as one, and does not return
// then. A TestMain calls it first.
func Main() {
	if len(os.Args) == 4 && os.Args[1] == role {
		os.Exit(standIn(&Runner{dir: os.Args[2], Address: os.Args[3]}))
	}
	// The race detector keeps a process for a second at its end.
	_ = os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
}

// standIn is the life of the process; it returns the exit code.
func standIn(r *Runner) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM)
	listener, err := net.Listen("tcp", r.Address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Whoever has its process id or its metrics finds all else, too.
	r.put(environmentName, strings.Join(os.Environ(), "\n"))
	r.tell("start")
	defer r.tell("end")
	r.put(pidName, strconv.Itoa(os.Getpid()))
	go http.Serve(listener, http.HandlerFunc(r.answer)) //nolint:errcheck,gosec // ends with the process
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for quitting := false; ; {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				r.tell("TERM")
				return 1
			}
			r.tell("QUIT")
			quitting = true
		case <-look.C:
			if quitting && r.jobs() == 0 && r.read(stayName) != "true" {
				return 0
			}
		}
	}
}

func (r *Runner) jobs() int {
	n, _ := strconv.Atoi(r.read(jobsName)) // the test writes nothing else
	return n
}

// answer is what a runner says: no series of jobs while there is none.
func (r *Runner) answer(w http.ResponseWriter, _ *http.Request) {
	if content := r.read(contentName); content != "" {
		_, _ = fmt.Fprint(w, content)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = fmt.Fprint(w, "# TYPE gitlab_runner_concurrent gauge\ngitlab_runner_concurrent 3\n")
	if n := r.jobs(); n > 0 {
		_, _ = fmt.Fprintf(w, "# TYPE gitlab_runner_jobs gauge\ngitlab_runner_jobs{executor_stage=\"\",runner=\"r\",stage=\"prepare_script\",state=\"running\"} %d\n", n)
	}
}

// put writes a file as a whole; what can't be written a test will miss.
func (r *Runner) put(name, content string) {
	path := filepath.Join(r.dir, name)
	if os.WriteFile(path+".new", []byte(content), 0o600) == nil {
		_ = os.Rename(path+".new", path)
	}
}

func (r *Runner) tell(what string) {
	file, err := os.OpenFile(filepath.Join(r.dir, storyName), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	_, _ = fmt.Fprintln(file, what)
}
