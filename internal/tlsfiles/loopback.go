package tlsfiles

import (
	"net"
	"net/netip"
)

// Loopback reports whether HOST:PORT can only be on this machine, where a token may be
// sent without TLS. A name other than localhost is not asked for: what it means may change
// between check and use.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
