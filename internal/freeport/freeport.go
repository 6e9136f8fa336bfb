// Package freeport finds loopback ports for programs that are told theirs before they
// listen on it.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
)

const (
	// lowest is where well-known services end that nobody wants in a port's way: most
	// registered ones that are in use have smaller numbers.
	lowest = 10_000
	// outgoingFrom is where the ports of outgoing connections begin that a kernel
	// picks by itself, by Linux's default (net.ipv4.ip_local_port_range in ip-sysctl).
	outgoingFrom = 32_768
	// tries bounds how many ports are looked at.
	tries = 200
)

var errNone = errors.New("no free port of 127.0.0.1")

// Find returns a TCP port of 127.0.0.1 that nobody listens on and that taken, unless it
// is nil, does not claim. The port is not one that the kernel would pick for an outgoing
// connection: asking for port 0 names such a port, and any program that dials in the
// meantime can get it. Nothing reserves the port, so what is told it should listen soon.
func Find(taken func(port int) bool) (int, error) {
	return find(lowest, outgoing(), taken)
}

func find(from, to int, taken func(port int) bool) (int, error) {
	if to <= from {
		from, to = 0, 1 // the kernel picks from all there are; so be it
	}
	last := error(nil)
	for range tries {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(from+rand.IntN(to-from))))
		if err != nil {
			last = err
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			return 0, fmt.Errorf("%w: %w", errNone, err)
		}
		if taken == nil || !taken(port) {
			return port, nil
		}
	}
	if last == nil {
		return 0, errNone
	}
	return 0, fmt.Errorf("%w: %w", errNone, last)
}

// outgoing is the lowest port that the kernel picks for outgoing connections.
func outgoing() int {
	content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return outgoingFrom // not Linux; macOS and Windows begin higher, at 49152
	}
	return firstOf(string(content))
}

func firstOf(portRange string) int {
	fields := strings.Fields(portRange)
	if len(fields) == 0 {
		return outgoingFrom
	}
	first, err := strconv.Atoi(fields[0])
	if err != nil {
		return outgoingFrom
	}
	return first
}
