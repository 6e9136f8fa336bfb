package shell

import (
	"context"
	"errors"
	"net"
	"sync"
)

// ErrEnded says that the script has ended, and its place with it.
var ErrEnded = errors.New("the script has ended")

// Place is where a script runs, for as long as it does: others may look in. It is safe
// for concurrent use.
type Place struct {
	dir     *workDir
	env     []string
	sockets *socketDir // nil: none was asked for
	ctx     context.Context
	end     context.CancelFunc

	// starting is held for reading while a process is being started: until it has the
	// script's environment it bears no mark, and the last sweep would miss it.
	starting  sync.RWMutex
	ended     bool // written with starting held
	processes sync.WaitGroup
}

func newPlace(dir *workDir, env []string, sockets *socketDir) *Place {
	p := &Place{dir: dir, env: env, sockets: sockets}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p
}

// Done is closed when the script has ended, or is about to be.
func (p *Place) Done() <-chan struct{} { return p.ctx.Done() }

// Socket connects to a unix socket that the script has made in its socket directory.
func (p *Place) Socket(name string) (net.Conn, error) {
	if p.sockets == nil {
		return nil, ErrNoSockets
	}
	return p.sockets.dial(name)
}

// close lets nothing begin any more; what runs bears the mark of the script.
func (p *Place) close() {
	p.starting.Lock()
	p.ended = true
	p.starting.Unlock()
	p.end()
}

// remove waits for what was started in the place, and gives up what it held.
func (p *Place) remove() error {
	p.close()
	p.processes.Wait()
	if p.sockets == nil {
		return nil
	}
	return p.sockets.remove()
}
