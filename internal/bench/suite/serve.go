package suite

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spillway-ci/spillway/internal/bench/child"
)

const (
	// serveTimeout is how long a control plane may take until it serves.
	serveTimeout = time.Minute
	// endTimeout is how long it may take to end: its own patience with plugins, and more.
	endTimeout = 20 * time.Second
	// maxTroubles bounds the kinds of trouble that are remembered.
	maxTroubles = 100
)

// planeProcess is `controlplane serve`, in a process of its own as it is elsewhere.
type planeProcess struct {
	cmd *exec.Cmd
	log *serveLog
}

// startPlaneProcess starts the control plane that was built into dir, with a
// configuration of this name, and waits until it says that it serves.
func startPlaneProcess(ctx context.Context, dir, name string, configuration map[string]any, env ...string) (_ *planeProcess, err error) {
	text, err := json.Marshal(configuration) // JSON is YAML too
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, name+".json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(dir, filepath.Base(servePlane)), "serve", "--config", file)
	cmd.Env = append(os.Environ(), env...)
	child.DieWithParent(cmd)
	out, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &planeProcess{cmd: cmd, log: followLog(out)}
	defer func() {
		if err != nil {
			_ = p.stop() // what has failed is said already
		}
	}()
	select {
	case <-p.log.serving:
		return p, nil
	case <-p.log.ended:
		return nil, fmt.Errorf("the control plane has ended: %s", p.log.last)
	case <-time.After(serveTimeout):
		return nil, fmt.Errorf("the control plane did not serve within %s", serveTimeout)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *planeProcess) pid() int { return p.cmd.Process.Pid }

// stop ends it in order: it ends its plugins itself.
func (p *planeProcess) stop() error {
	p.log.stopping.Store(true)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	hard := time.AfterFunc(endTimeout, func() { _ = p.cmd.Process.Kill() })
	defer hard.Stop()
	<-p.log.ended // its output must be read before Wait
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("the control plane: %w: %s", err, p.log.last)
	}
	return nil
}

// kill ends it as if the machine had failed, and returns when it was killed.
func (p *planeProcess) kill() (at time.Time) {
	p.log.stopping.Store(true)
	_ = p.cmd.Process.Kill()
	at = time.Now()
	<-p.log.ended
	_ = p.cmd.Wait() // it was killed, which is no news
	return at
}

// serveLog is what a control plane says of itself.
type serveLog struct {
	serving, ended chan struct{}
	stopping       atomic.Bool    // it was told to end: what it cannot finish then is no trouble
	at             serveAddresses // constant once serving is closed
	last           string         // the last line; constant once ended is closed
	trouble        map[string]int // constant once ended is closed
}

// serveAddresses is where it serves; empty = it doesn't.
type serveAddresses struct {
	API, Runners, Metrics, GitLab string
	JobRouter                     string `json:"job_router"`
}

func followLog(out io.Reader) *serveLog {
	l := &serveLog{serving: make(chan struct{}), ended: make(chan struct{}), trouble: map[string]int{}}
	go func() {
		defer close(l.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			l.take(s.Bytes())
		}
	}()
	return l
}

func (l *serveLog) take(line []byte) {
	l.last = string(line)
	var said struct {
		serveAddresses
		Level, Msg, Doing, Error string
	}
	if json.Unmarshal(line, &said) != nil {
		return // a word of somebody else's
	}
	switch {
	case said.Msg == "serving":
		l.at = said.serveAddresses
		close(l.serving)
	case !l.stopping.Load() && (said.Level == "WARN" || said.Level == "ERROR"):
		if len(l.trouble) < maxTroubles {
			l.trouble[said.Msg+" "+said.Doing+": "+said.Error]++
		}
	}
}

// maxComplaints bounds what a table tells of a control plane's log.
const maxComplaints = 5

// complain adds what the control plane warned of, the most frequent first.
func (l *serveLog) complain(b *bench) {
	kinds := slices.SortedFunc(maps.Keys(l.trouble), func(x, y string) int {
		return cmp.Or(cmp.Compare(l.trouble[y], l.trouble[x]), cmp.Compare(x, y))
	})
	for _, kind := range kinds[:min(maxComplaints, len(kinds))] {
		b.note("the control plane warned %d times: %.200s", l.trouble[kind], kind)
	}
}
