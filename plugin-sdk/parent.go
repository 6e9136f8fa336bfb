package pluginsdk

import (
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// parentPoll is how often a plugin looks whether its parent is still there.
const parentPoll = time.Second

// watchSignals ends the process in order at SIGTERM. go-plugin eats SIGINT.
func (l *life) watchSignals() {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	<-terminated
	l.end()
}

// watchParent ends the process when its host is dead, by whichever sign comes
// first: the pipe on standard input (at once, also if the host died before we
// could look) or a new parent. A host that is killed can't tell its plugins, and
// a plugin that lives on goes on acting on the cloud.
func (l *life) watchParent() {
	if os.Getenv(StdinEnv) == "1" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // the host never writes; any end is its end
			l.orphaned("the host's end of standard input is closed")
		}()
	}
	parent := os.Getppid()
	for range time.Tick(parentPoll) {
		if os.Getppid() != parent {
			l.orphaned("the host is dead")
			return
		}
	}
}
