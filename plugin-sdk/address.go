package pluginsdk

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// MaxHostBytes bounds the host of an address [bytes]: DNS allows no longer name.
const MaxHostBytes = 253

// CheckAddress says what is wrong with an [Instance]'s Address; nothing is, with an
// empty one. The control plane connects to it, and takes one that is more than a
// host and a port for none.
func CheckAddress(address string) error {
	if address == "" {
		return nil
	}
	if isIP(address) {
		return nil
	}
	host := address
	if strings.ContainsRune(address, ':') {
		h, port, err := net.SplitHostPort(address)
		if err != nil {
			return errors.New("use a host, or host:port")
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errors.New("use a port from 1 to 65535")
		}
		host = h
	}
	if isIP(host) {
		return nil
	}
	return checkHostName(host)
}

// isIP refuses zones: they mean something on one machine only, and may hold anything.
func isIP(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Zone() == ""
}

func checkHostName(host string) error {
	if len(host) == 0 || len(host) > MaxHostBytes {
		return fmt.Errorf("use a host of 1 to %d bytes", MaxHostBytes)
	}
	for _, r := range host {
		if r != '-' && r != '.' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return errors.New("use a name of letters, digits, -, _ and ., or an IP address")
		}
	}
	if strings.HasPrefix(host, "-") || strings.HasPrefix(host, ".") {
		return errors.New("begin the name with a letter or a digit")
	}
	return nil
}
