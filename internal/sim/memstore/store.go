package memstore

import (
	"errors"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// DefaultClaimTTL is how long a claim holds without being renewed.
const DefaultClaimTTL = time.Minute

// Fault is what is wrong with the store now.
type Fault int

// The faults.
const (
	Healthy  Fault = iota
	Down           // nothing can be read or written
	Readonly       // nothing can be written
)

// errReadonly is what Redis says after a failover to a replica.
var errReadonly = errors.Join(store.ErrUnavailable, errors.New("it is read-only"))

// Store is the shared state. The zero value is not usable: see New.
type Store struct {
	// Fault is set by whoever plays the story.
	Fault Fault
	// Changed is told each new state of a job; nil = nobody is.
	Changed func(spillway.JobRecord)
	// Ages are the times for which Counts says how many jobs have waited so long.
	Ages []time.Duration
	// Ordered is told when drains were ordered or taken back; nil = nobody is.
	Ordered func()

	clock    func() time.Time
	claimTTL time.Duration
	arrival  uint64 // grows with each job queued, to order those of one moment

	shared
}

// shared is what a wipe takes away.
type shared struct {
	jobs     map[spillway.JobID]*entry
	classes  map[spillway.JobClass]*class
	machines map[spillway.MachineID]router.Machine
	drains   map[spillway.MachineID]router.DrainOrder
	leases   map[string]lease
	memory   map[string]memory
	ledger   []LedgerEntry
	books    map[spillway.MachineID]*book
	boards   map[string]board
	settings map[string]map[string][]byte // by kind and name
	present  map[string]presence          // by replica
	// bookSince is when a pool's book was first read.
	bookSince map[string]time.Time
}

// LedgerEntry is one entry as it was appended.
type LedgerEntry struct {
	Pool  string
	Entry []byte
}

// New returns an empty store that reads its clock from clock.
func New(clock func() time.Time) *Store {
	s := &Store{clock: clock, claimTTL: DefaultClaimTTL}
	s.Wipe()
	return s
}

// Wipe forgets everything, as FLUSHALL does.
func (s *Store) Wipe() {
	s.shared = shared{
		jobs:     make(map[spillway.JobID]*entry),
		classes:  make(map[spillway.JobClass]*class),
		machines: make(map[spillway.MachineID]router.Machine),
		drains:   make(map[spillway.MachineID]router.DrainOrder),
		leases:   make(map[string]lease),
		memory:   make(map[string]memory),
		books:    make(map[spillway.MachineID]*book),
		boards:   make(map[string]board),
		settings: make(map[string]map[string][]byte),
		present:  make(map[string]presence),

		bookSince: make(map[string]time.Time),
	}
}

func (s *Store) canRead() error {
	if s.Fault == Down {
		return store.ErrUnavailable
	}
	return nil
}

func (s *Store) canWrite() error {
	switch s.Fault {
	case Down:
		return store.ErrUnavailable
	case Readonly:
		return errReadonly
	default:
		return nil
	}
}
