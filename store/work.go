package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-ci/spillway"
)

// MaxWorkTTL bounds how long it is kept what a worker was given: the longest job, and a
// day for what comes after it.
const MaxWorkTTL = spillway.MaxJobTimeout + 24*time.Hour

var dropWorkScript = mustScript("dropwork")

// Work is the job that a worker was given which asks for jobs by single calls, and may
// make the next one at another replica. It says no more than that it was given: whether
// the attempt is still the job's newest, the job's record says.
type Work struct {
	Machine spillway.MachineID
	Pool    string
	Job     spillway.JobID
	Attempt int
	Replica string // that has the worker
	By      string // who the worker was when it was given
}

func (s *Store) workKey(machine spillway.MachineID) string { return s.key("w:"+string(machine), "job") }

func (w *Work) validate() error {
	ok := printable(string(w.Machine), maxNameBytes) && printable(string(w.Job), spillway.MaxJobIDBytes) && spillway.PoolName(w.Pool) &&
		w.Attempt > 0 && len(w.Replica) <= maxMachineBytes && len(w.By) <= maxMachineBytes
	if !ok {
		return fmt.Errorf("%w: work of %.40q", spillway.ErrInvalid, w.Machine)
	}
	return nil
}

// PutWork keeps what a worker was given for as long as ttl says, in place of what it was
// given before.
func (s *Store) PutWork(ctx context.Context, w Work, ttl time.Duration) error {
	if err := w.validate(); err != nil {
		return fmt.Errorf("store: put work: %w", err)
	}
	if ttl < time.Millisecond || ttl > MaxWorkTTL {
		return fmt.Errorf("store: put work: %w: kept for %s, use 1ms to %s", spillway.ErrInvalid, ttl, MaxWorkTTL)
	}
	ctx, done := s.begin(ctx)
	defer done()
	pipe := s.rdb.TxPipeline()
	key := s.workKey(w.Machine)
	pipe.HSet(ctx, key, "pool", w.Pool, "job", string(w.Job), "attempt", w.Attempt, "replica", w.Replica, "by", w.By)
	pipe.PExpire(ctx, key, ttl)
	_, err := pipe.Exec(ctx)
	return failed("put work", err, writing)
}

// Work returns what a worker was given, and whether there is anything.
func (s *Store) Work(ctx context.Context, machine spillway.MachineID) (w Work, ok bool, err error) {
	ctx, done := s.begin(ctx)
	defer done()
	kept, err := s.rdb.HGetAll(ctx, s.workKey(machine)).Result()
	if err != nil || len(kept) == 0 {
		return Work{}, false, failed("work", err, reading)
	}
	attempt, err := strconv.Atoi(kept["attempt"])
	w = Work{Machine: machine, Pool: kept["pool"], Job: spillway.JobID(kept["job"]), Attempt: attempt, Replica: kept["replica"], By: kept["by"]}
	if err != nil || w.validate() != nil {
		return Work{}, false, fmt.Errorf("store: work of %.40q: %w", machine, errContent)
	}
	return w, true, nil
}

// DropWork forgets what a worker was given, if it is still that.
func (s *Store) DropWork(ctx context.Context, w Work) error {
	if err := w.validate(); err != nil {
		return fmt.Errorf("store: drop work: %w", err)
	}
	ctx, done := s.begin(ctx)
	defer done()
	_, err := s.runOne(ctx, call{dropWorkScript, []string{s.workKey(w.Machine)}, []any{string(w.Job), strconv.Itoa(w.Attempt)}})
	return failed("drop work", err, writing)
}
