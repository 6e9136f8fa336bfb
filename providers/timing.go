package providers

import "time"

// Timing is the host's patience. Zero values are replaced by the defaults.
type Timing struct {
	// Start is from exec to handshake. A plugin does nothing there but load; less
	// than 10 s fails on a machine that is busy starting everything at once.
	Start time.Duration
	// Configure is for Describe and Configure after the start: Configure may look
	// up credentials.
	Configure time.Duration
	// Read is the deadline of Status, ListInstances and Count. A large group is dozens of
	// pages of a slow API.
	Read time.Duration
	// Find is the deadline of Findings, which nobody waits for: hundreds of calls of
	// a budget that the pools' own calls come out of too.
	Find time.Duration
	// Write is the deadline of everything that changes something, and has to be
	// well below the lease (15 s, renewed every 5 s): a write must not arrive after
	// another replica has taken over.
	Write time.Duration
	// Ping is how often the process is asked whether it is healthy, PingAnswer how
	// long it may take. maxMisses in a row and it is restarted.
	Ping       time.Duration
	PingAnswer time.Duration
	// Close is for the Close call, Kill for the process to be gone since then.
	Close time.Duration
	Kill  time.Duration
	// Restart is the wait before the second restart in a row; it doubles with each,
	// up to Settle. Settle is also the span within which five deaths are a crash loop,
	// how often a start is tried in one, and how long a process must live to start a
	// new count.
	Restart time.Duration
	Settle  time.Duration
}

const (
	// maxMisses is the number of pings without an answer in a row, and of calls
	// that hit their deadline in a row, after which a process counts as hung. One
	// is bad luck; three reads are already 90 s.
	maxMisses = 3
	// batchWindow is how long a Status waits for others to share its call. Each one
	// that comes has it wait as long again, since where a thousand pools tick together
	// more are on their way, but no longer than batchPatience in all.
	batchWindow   = 2 * time.Millisecond
	batchPatience = 50 * time.Millisecond
)

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Start, 10 * time.Second},
		{&t.Configure, 30 * time.Second},
		{&t.Read, 30 * time.Second},
		{&t.Find, 2 * time.Minute},
		{&t.Write, 8 * time.Second},
		{&t.Ping, time.Second},
		{&t.PingAnswer, 2 * time.Second},
		{&t.Close, 2 * time.Second},
		{&t.Kill, 3 * time.Second},
		{&t.Restart, time.Second},
		{&t.Settle, time.Minute},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return t
}
