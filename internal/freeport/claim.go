package freeport

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"syscall"
)

// claims are the ports that this process has claimed.
var claims sync.Map

// Claim takes a port for this process until it ends; false: another process has claimed it,
// or this one has. Between Find and whoever is to listen there is a moment, and of many
// test processes at once two would be given the same port now and then. It keeps nobody
// else from the port, and costs a file descriptor.
func Claim(port int) bool {
	if _, before := claims.LoadOrStore(port, nil); before {
		return false
	}
	if runtime.GOOS != "linux" {
		return true // nothing else has names that go with the process
	}
	l, err := net.Listen("unix", fmt.Sprintf("@spillway-port-%d", port))
	if err == nil {
		claims.Store(port, l) // so that it stays open
	}
	return !errors.Is(err, syscall.EADDRINUSE)
}
