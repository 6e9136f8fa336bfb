package main

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/agent"
)

var errPoweredOff = errors.New("powered off")

// machine is the runner of one instance. It ends as a virtual machine does that is
// taken away: without a word.
type machine struct {
	routers []string // the first that answers is used
	end     context.CancelCauseFunc
	done    chan struct{}

	mu struct {
		sync.Mutex
		off   bool
		conns []net.Conn
	}
}

// boot starts a runner in dir.
func boot(instance, dir, token string, capacity int, routers []string) *machine {
	ctx, end := context.WithCancelCause(context.Background())
	m := &machine{routers: routers, end: end, done: make(chan struct{})}
	o := agent.Options{
		Router: routers[0], Token: agent.StaticToken(token), Dial: m.dial,
		InstanceID: instance, Capacity: capacity, WorkDir: dir, StopGrace: time.Millisecond,
	}
	go func() {
		defer close(m.done)
		_ = agent.Run(ctx, o) // the test looks at what became of the jobs
	}()
	return m
}

func (m *machine) dial(ctx context.Context, _ string) (net.Conn, error) {
	var failure error
	for _, router := range m.routers {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", router)
		if err != nil {
			failure = err
			continue
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.mu.off {
			return nil, errors.Join(errPoweredOff, conn.Close())
		}
		m.mu.conns = append(m.mu.conns, conn)
		return conn, nil
	}
	return nil, failure
}

// powerOff cuts the machine off, and ends what runs on it.
func (m *machine) powerOff() {
	m.mu.Lock()
	m.mu.off = true
	for _, conn := range m.mu.conns {
		_ = conn.Close()
	}
	m.mu.Unlock()
	m.end(errPoweredOff)
}

// run is one execution of a job's script.
type run struct {
	job, attempt, instance string
	ended                  bool
}

// diary is the file in which every script writes its begin and its end.
type diary struct{ path string }

// script is one that writes into the diary around what it does.
func (d diary) script(what string) string {
	const line = `"$SPILLWAY_JOB_ID $SPILLWAY_ATTEMPT $SPILLWAY_INSTANCE_ID"`
	return "echo begin " + line + " >> " + d.path + "\n" + what + "\necho end " + line + " >> " + d.path + "\n"
}

// runs are all executions so far, by their begin.
func (d diary) runs() []run {
	text, err := os.ReadFile(d.path)
	if err != nil {
		return nil // nobody has written yet
	}
	var runs []run
	at := map[run]int{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		word := strings.Fields(line)
		r := run{job: word[1], attempt: word[2], instance: word[3]}
		if word[0] == "begin" {
			at[r] = len(runs)
			runs = append(runs, r)
		} else {
			runs[at[r]].ended = true
		}
	}
	return runs
}

// working is how many jobs run on an instance.
func (d diary) working(instance string) (n int) {
	for _, r := range d.runs() {
		if r.instance == instance && !r.ended {
			n++
		}
	}
	return n
}
