package store

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

// A machine is written in a compact form of its own: all of them are read at every
// tick of the scaler, and thousands of them as JSON would take longer than the rest
// of the tick. The first byte is the version; a reader refuses others, and machines
// are put again with every heartbeat.
//
// Version 2 adds what a machine says of itself. A machine that says nothing is still
// written in version 1, so that replicas from before can read it during an upgrade.
const (
	machineVersion         = 1
	machineVersionWithWord = 2
)

// maxMachineBytes bounds one string of a machine [bytes].
const maxMachineBytes = 1 << 10

const (
	flagDraining = 1 << iota
	flagConnected
)

func encodeMachine(m *router.Machine) string {
	var flags byte
	if m.Draining {
		flags |= flagDraining
	}
	if m.Connected {
		flags |= flagConnected
	}
	version := byte(machineVersion)
	if m.InterruptionKind != "" || !m.InterruptedAt.IsZero() || !m.InterruptionDeadline.IsZero() || m.Unhealthy != "" {
		version = machineVersionWithWord
	}
	b := append(make([]byte, 0, 128), version, flags)
	for _, s := range []string{string(m.ID), m.InstanceID, m.Pool, m.Version, m.Replica} {
		b = appendString(b, s)
	}
	for _, n := range []int{m.Capacity, m.Busy, m.Assigned, m.Uses} {
		b = binary.AppendVarint(b, int64(n))
	}
	for _, t := range []time.Time{m.DrainAckedAt, m.HeardAt, m.HeartbeatAt, m.RegisteredAt, m.LastUsedAt, m.StoppingSince} {
		b = appendTime(b, t)
	}
	if version == machineVersionWithWord {
		b = appendString(b, m.InterruptionKind)
		b = appendTime(appendTime(b, m.InterruptedAt), m.InterruptionDeadline)
		b = appendString(b, m.Unhealthy)
	}
	return string(b)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func decodeMachine(text string) (router.Machine, error) {
	r := wordReader{left: text}
	version := r.byte()
	if version != machineVersion && version != machineVersionWithWord {
		return router.Machine{}, fmt.Errorf("%w: a machine in version %d", errContent, version)
	}
	flags := r.byte()
	m := router.Machine{
		ID: spillway.MachineID(r.str()), InstanceID: r.str(), Pool: r.str(), Version: r.str(), Replica: r.str(),
		Capacity: r.int(), Busy: r.int(), Assigned: r.int(), Uses: r.int(),
		DrainAckedAt: r.time(), HeardAt: r.time(), HeartbeatAt: r.time(), RegisteredAt: r.time(), LastUsedAt: r.time(),
		StoppingSince: r.time(),
		Draining:      flags&flagDraining != 0, Connected: flags&flagConnected != 0,
	}
	if version == machineVersionWithWord {
		m.InterruptionKind, m.InterruptedAt, m.InterruptionDeadline, m.Unhealthy = r.str(), r.time(), r.time(), r.str()
	}
	if r.bad || len(r.left) > 0 {
		return router.Machine{}, fmt.Errorf("%w: a machine of %d bytes", errContent, len(text))
	}
	return m, nil
}

// appendTime writes µs since 1970, and 0 for no time.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.AppendVarint(b, 0)
	}
	return binary.AppendVarint(b, t.UnixMicro())
}

// wordReader reads what encodeMachine wrote; bad says that there was less. The strings
// that it returns are parts of what it reads.
type wordReader struct {
	left string
	bad  bool
}

func (r *wordReader) byte() byte {
	if len(r.left) == 0 {
		r.bad = true
		return 0
	}
	b := r.left[0]
	r.left = r.left[1:]
	return b
}

func (r *wordReader) str() string {
	n := r.uvarint()
	if n > maxMachineBytes || n > uint64(len(r.left)) {
		r.bad, r.left = true, ""
		return ""
	}
	s := r.left[:n]
	r.left = r.left[n:]
	return s
}

// uvarint reads what binary.AppendUvarint wrote.
func (r *wordReader) uvarint() uint64 {
	var head [binary.MaxVarintLen64]byte
	n, size := binary.Uvarint(head[:copy(head[:], r.left)])
	if size <= 0 {
		r.bad, r.left = true, ""
		return 0
	}
	r.left = r.left[size:]
	return n
}

// varint reads what binary.AppendVarint wrote.
func (r *wordReader) varint() int64 {
	n := r.uvarint()
	return int64(n>>1) ^ -int64(n&1)
}

func (r *wordReader) int() int { return int(r.varint()) }

func (r *wordReader) time() time.Time {
	n := r.varint()
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}
