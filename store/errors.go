package store

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// intent says what a failed operation may have left behind.
type intent int

const (
	reading intent = iota // changes nothing
	writing
)

// refusals begin the answers of a server that has looked at a command and has not
// run it.
var refusals = []string{
	"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "MOVED", "ASK",
	"OOM", "MISCONF", "BUSY", "NOAUTH", "WRONGPASS", "NOPERM", "NOSCRIPT", "max number of clients",
	// Sentinel's client says this in words of its own.
	"redis: all sentinels",
}

// failed puts an error of the client into this package's words: ErrUnavailable
// when nothing can have been written, otherwise ErrUnknown. nil stays nil.
func failed(op string, err error, in intent) error {
	if err == nil {
		return nil
	}
	kind := ErrUnknown
	if in == reading || neverRan(err) {
		kind = ErrUnavailable
	}
	return fmt.Errorf("store: %s: %w: %w", op, kind, err)
}

// neverRan reports whether the server can't have run the command.
func neverRan(err error) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return true
	}
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) {
		return true
	}
	text := strings.TrimPrefix(err.Error(), "ERR ")
	for _, r := range refusals {
		if strings.HasPrefix(text, r) {
			return true
		}
	}
	return false
}
