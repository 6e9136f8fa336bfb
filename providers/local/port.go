package local

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// portTries bounds how often a port is asked for: the kernel may name one that an
// instance has and does not listen on yet.
const portTries = 100

var errNoPort = errors.New("no free port of 127.0.0.1")

// freePort finds a port that nobody listens on and that no instance was given, so that
// what answers there is the instance or nothing. The lock is held.
func (p *Provider) freePort() (int, error) {
	for range portTries {
		listener, err := net.Listen("tcp", addressAt(0))
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errNoPort, err)
		}
		port := listener.Addr().(*net.TCPAddr).Port
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("%w: %w", errNoPort, err)
		}
		if !p.given(port) {
			return port, nil
		}
	}
	return 0, errNoPort
}

// given reports whether an instance has the port. The lock is held.
func (p *Provider) given(port int) bool {
	for _, g := range p.mu.groups {
		for _, in := range g.instances {
			if in.port == port {
				return true
			}
		}
	}
	return false
}

func addressAt(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// address is where the instance is asked; "" = nowhere.
func (in *instance) address() string {
	if in.port == 0 {
		return ""
	}
	return addressAt(in.port)
}
