package local

import (
	"net"
	"strconv"

	"github.com/spillway-ci/spillway/internal/freeport"
)

// freePort finds a port that nobody listens on and that no instance was given, so that
// what answers there is the instance or nothing. The lock is held.
func (p *Provider) freePort() (int, error) { return freeport.Find(p.given) }

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
