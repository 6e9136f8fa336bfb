package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
)

const (
	// MaxRoutedOpen bounds the open jobs of one machine [jobs]: twice what an instance
	// may run, because a job whose end nobody saw stays until its Until.
	MaxRoutedOpen = 2 * spillway.MaxCapacityPerInst
	// MaxRoutedFor bounds how long a job may be open: GitLab's longest timeout, and a
	// day for what comes before and after the script.
	MaxRoutedFor = spillway.MaxJobTimeout + 24*time.Hour
	// bookUnread is how long a pool's book may be unread and still be taken for whole:
	// longer than anybody is away who hands jobs out. Who has not for longer may have
	// had them handed out without us, in another mode.
	bookUnread = 24 * time.Hour
	// bookMarkEvery is how exactly it is kept when a book was last read.
	bookMarkEvery = time.Hour
)

// ErrBookFull says that the machine has MaxRoutedOpen open jobs. Nothing was booked.
var ErrBookFull = errors.New("the machine's book is full")

var (
	beginScript  = mustScript("begin", "book")
	finishScript = mustScript("finish", "book")
	routedScript = mustScript("routed", "book")
	poolsScript  = mustScript("pools")
)

// RoutedJob is a job that GitLab gave out through us: never its payload or token.
type RoutedJob struct {
	ID      spillway.JobID
	Pool    string
	Machine spillway.MachineID
	// Begun is when it was given out. After Until, by the server's clock, it is not open
	// any more, whether its end was seen or not. Both are kept in µs.
	Begun, Until time.Time
	// ConfirmWithin is how long from its begin on, by the server's clock, the machine has
	// to say that it has the job (ConfirmRouted). A job that was not confirmed by then is
	// not open any more, if the machine has ever confirmed one: else it isn't known that
	// what it says passes through us. 0 = nobody waits for its word, or it was given.
	// Routed doesn't tell it.
	ConfirmWithin time.Duration
}

func (j *RoutedJob) validate() error {
	switch {
	case !printable(string(j.ID), spillway.MaxJobIDBytes):
		return fmt.Errorf("%w: job %.40q", spillway.ErrInvalid, j.ID)
	case !spillway.PoolName(j.Pool):
		return fmt.Errorf("%w: pool %.40q", spillway.ErrInvalid, j.Pool)
	case j.Machine == "" || len(j.Machine) > maxMachineBytes:
		return fmt.Errorf("%w: machine %.40q", spillway.ErrInvalid, j.Machine)
	case j.Begun.UnixMicro() <= 0:
		return fmt.Errorf("%w: job %s began at %s", spillway.ErrInvalid, j.ID, j.Begun)
	case !j.Until.After(j.Begun) || j.Until.Sub(j.Begun) > MaxRoutedFor:
		return fmt.Errorf("%w: job %s would be open for %s: more than nothing and at most %s are allowed", spillway.ErrInvalid, j.ID, j.Until.Sub(j.Begun), MaxRoutedFor)
	case j.ConfirmWithin < 0 || j.ConfirmWithin > MaxRoutedFor:
		return fmt.Errorf("%w: job %s is to be confirmed within %s", spillway.ErrInvalid, j.ID, j.ConfirmWithin)
	}
	return nil
}

// routedKey is the pools in whose books a job may be. It is written before the book
// and lives as long as the job is open, so that the end of a job finds its book.
func (s *Store) routedKey(id spillway.JobID) string { return s.key("r:"+string(id), "pools") }

// BeginRouted books a job on a machine, unless the machine is ordered to drain: begun
// is false then, and nothing is booked. It is atomic against OrderDrain: whoever reads
// the book after an order has been written sees every job that was begun before it,
// and none is begun after it.
//
// Repeating it is harmless, and true if the first one was, whatever was ordered since.
// A job that is in the book of another machine moves: GitLab has given it out anew.
// With an error, nobody may count on the job being in the book, nor on its not being.
func (s *Store) BeginRouted(ctx context.Context, j RoutedJob) (begun bool, err error) {
	if err := j.validate(); err != nil {
		return false, fmt.Errorf("store: begin routed job: %w", err)
	}
	ctx, done := s.begin(ctx)
	defer done()
	pools, err := s.indexRouted(ctx, &j)
	if err != nil {
		return false, failed("begin routed job", err, writing)
	}
	answer, err := s.runOne(ctx, call{beginScript, s.machineKeys(j.Pool), []any{
		string(j.Machine), string(j.ID), j.Begun.UnixMicro(), j.Until.UnixMicro(), s.opt.MachineTTL.Milliseconds(), MaxRoutedOpen, j.ConfirmWithin.Microseconds(),
	}})
	if err != nil {
		return false, failed("begin routed job", err, writing)
	}
	switch asInt(answer) {
	case 1:
		s.leaveOtherPools(ctx, &j, pools)
		return true, nil
	case 0:
		return false, nil
	case -1:
		return false, fmt.Errorf("store: begin routed job %s: %w: its until, %s, is past by the server's clock", j.ID, spillway.ErrInvalid, j.Until)
	default:
		return false, fmt.Errorf("store: begin routed job %s on machine %.40q: %w: %d are open", j.ID, j.Machine, ErrBookFull, MaxRoutedOpen)
	}
}

// indexRouted notes in which pool a job may be, and returns all of them.
func (s *Store) indexRouted(ctx context.Context, j *RoutedJob) ([]any, error) {
	return s.run(ctx, []call{{poolsScript, []string{s.routedKey(j.ID)}, []any{j.Pool, j.Until.Add(time.Second).UnixMilli()}}})[0].list()
}

// leaveOtherPools takes a job that has moved out of the books of other pools, unless
// it has begun there since. If that fails, it is no failure of the begin: the job is
// booked once too often, which keeps a machine, until its Until at the most.
func (s *Store) leaveOtherPools(ctx context.Context, j *RoutedJob, pools []any) {
	for _, p := range pools {
		if pool := asString(p); pool != j.Pool {
			_, _ = s.strike(ctx, pool, j.ID, strconv.FormatInt(j.Begun.UnixMicro(), 10))
		}
	}
}

// EndRouted strikes a job, whoever has it; ended says whether it was open.
func (s *Store) EndRouted(ctx context.Context, id spillway.JobID) (ended bool, err error) {
	if !printable(string(id), spillway.MaxJobIDBytes) {
		return false, fmt.Errorf("store: end routed job: %w: job %.40q", spillway.ErrInvalid, id)
	}
	ctx, done := s.begin(ctx)
	defer done()
	pools, err := s.rdb.SMembers(ctx, s.routedKey(id)).Result()
	if err != nil {
		return false, failed("end routed job", err, reading)
	}
	for _, pool := range pools {
		struck, err := s.strike(ctx, pool, id, "")
		if err != nil {
			return false, failed("end routed job", err, writing)
		}
		ended = ended || struck
	}
	return ended, nil
}

// strike takes a job out of a pool's books and then off the index. Without before, it
// does so whenever the job began.
func (s *Store) strike(ctx context.Context, pool string, id spillway.JobID, before string) (bool, error) {
	answer, err := s.runOne(ctx, call{finishScript, s.machineKeys(pool), []any{string(id), s.opt.MachineTTL.Milliseconds(), before}})
	if err != nil || asInt(answer) != 1 {
		return false, err
	}
	// What is left on the index expires; so does this if the removal fails.
	_ = s.rdb.SRem(ctx, s.routedKey(id), pool).Err()
	return true, nil
}

// RoutedMachine is the book of one machine.
type RoutedMachine struct {
	// Open is its jobs that are neither past Until nor past the time to confirm them, in
	// the order in which they began.
	Open []RoutedJob
	// Uses counts the jobs that were ever begun on it. Like LastUsedAt, it is remembered
	// as long as the machine's record, or MachineTTL after the last begin or end.
	Uses       int
	LastUsedAt time.Time // when one last began or ended, by the server's clock
}

// RoutedBook is what a pool's machines were given.
type RoutedBook struct {
	// Machines has the books of the machines; one that was never given a job has none.
	Machines map[spillway.MachineID]RoutedMachine
	// Since is since when the book has every job, by the server's clock: when it was first
	// read. It is kept with the book itself and read in one go with it: a book that was
	// lost begins anew. So does one that nobody has read for a day, and one that was read
	// as not whole before.
	Since time.Time
	// At is when the book was read, by the server's clock.
	At time.Time
}

// Routed returns the book of a pool, all of it or an error. whole says that every job of
// the pool's machines is booked now: where some may reach them in another way, Since is
// of no use, and counts for nothing once they don't any more.
func (s *Store) Routed(ctx context.Context, pool string, whole bool) (RoutedBook, error) {
	ctx, done := s.begin(ctx)
	defer done()
	args := []any{bookUnread.Microseconds(), bookMarkEvery.Microseconds(), oneIf(whole)}
	list, err := s.run(ctx, []call{{routedScript, s.machineKeys(pool), args}})[0].list()
	if err != nil {
		return RoutedBook{}, failed("routed", err, reading) // to mark it twice is to mark it once
	}
	if len(list)%3 != 2 {
		return RoutedBook{}, failed("routed", errReply, reading)
	}
	var r numberReader
	b := RoutedBook{At: r.time(asString(list[0])), Since: r.time(asString(list[1])), Machines: make(map[spillway.MachineID]RoutedMachine, len(list)/3)}
	if r.bad {
		return RoutedBook{}, failed("routed", errReply, reading)
	}
	for i := 2; i < len(list); i += 3 {
		id, live := spillway.MachineID(asString(list[i])), asInt(list[i+2]) == 1
		machine, err := decodeBook(pool, id, asString(list[i+1]), b.At)
		if err != nil {
			return RoutedBook{}, fmt.Errorf("store: machine %.40q of pool %s: %w", id, pool, err)
		}
		if live || len(machine.Open) > 0 {
			b.Machines[id] = machine
		}
	}
	return b, nil
}

// decodeBook reads what write in scripts/book.lua wrote.
func decodeBook(pool string, machine spillway.MachineID, text string, now time.Time) (RoutedMachine, error) {
	head, jobs, _ := strings.Cut(text, "\n")
	uses, rest, ok := strings.Cut(head, " ")
	last, said, heard := strings.Cut(rest, " ")
	r := numberReader{bad: !ok || (heard && said != "1")}
	book := RoutedMachine{Uses: int(r.number(uses)), LastUsedAt: r.time(last)}
	for line := range strings.Lines(jobs) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if len(words) < 3 || len(words) > 4 {
			r.bad = true
			break
		}
		j := RoutedJob{ID: spillway.JobID(words[0]), Pool: pool, Machine: machine, Begun: r.time(words[1]), Until: r.time(words[2])}
		lapsed := len(words) == 4 && !r.time(words[3]).After(now) && heard
		if j.Until.After(now) && !lapsed {
			book.Open = append(book.Open, j)
		}
	}
	if r.bad {
		return RoutedMachine{}, fmt.Errorf("%w: a book of %d bytes", errContent, len(text))
	}
	return book, nil
}

// numberReader reads numbers that are not negative; bad says that one was none.
type numberReader struct{ bad bool }

func (r *numberReader) number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		r.bad = true
		return 0
	}
	return n
}

// time reads µs since 1970.
func (r *numberReader) time(s string) time.Time { return time.UnixMicro(r.number(s)).UTC() }
