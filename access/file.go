package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Limits of an audit file. MaxFileBytes times KeptFiles+1 is what it may fill.
const (
	MaxFileBytes = 10 << 20 // [bytes]; some 40,000 entries
	KeptFiles    = 5        // older files besides the one that is written: PATH.1 is the newest
	maxQueued    = 1024     // entries that wait to be written
	// recordWithin is how long a caller waits for room: a disk that hangs for longer
	// must not hang the calls too.
	recordWithin = 100 * time.Millisecond
)

// AuditOptions are what both audits need.
type AuditOptions struct {
	Log *slog.Logger
	// Redact masks what looks like a secret, as a last net; nil: nothing does.
	Redact func(string) string
	// Lost is told of each entry that the file could not take; may be nil.
	Lost func()
}

// NewLogAudit keeps entries in the log.
func NewLogAudit(o AuditOptions) Audit { return logAudit{o} }

type logAudit struct{ o AuditOptions }

func (a logAudit) Record(ctx context.Context, e Entry) {
	a.o.Log.Info("audit", attributes(e.filled(ctx, time.Now(), a.o.Redact))...)
}

func attributes(e Entry) []any {
	return []any{"who", e.Who, "via", e.Via, "subject", e.Subject, "action", e.Action, "object", e.Object, "detail", e.Detail, "ok", e.OK}
}

// File is an audit in a file: an entry is a line of JSON. One program writes to it. When
// it is full it is renamed, and the oldest goes.
type File struct {
	opt      AuditOptions
	path     string
	maxBytes int64

	queue chan Entry
	// closing is held for reading while an entry is put into the queue, so that none is put
	// there once it is closed.
	closing sync.RWMutex
	closed  bool // no more entries are taken; written with closing held
	done    sync.WaitGroup

	file  *os.File // of the writing goroutine from here on
	bytes int64
}

// OpenFile opens or makes the file, readable by its owner only, and begins to write.
func OpenFile(path string, o AuditOptions) (*File, error) { return openFile(path, MaxFileBytes, o) }

func openFile(path string, maxBytes int64, o AuditOptions) (*File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("audit.file: %s is no regular file", path)
	}
	f := &File{opt: o, path: path, maxBytes: maxBytes, queue: make(chan Entry, maxQueued)}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("audit.file: %w", err)
	}
	f.done.Go(f.run)
	return f, nil
}

func (f *File) open() (err error) {
	if f.file, err = os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	info, err := f.file.Stat()
	if err == nil {
		f.bytes = info.Size()
		err = f.file.Chmod(0o600) // one that somebody made before us may be open to all
	}
	if err != nil {
		err = errors.Join(err, f.file.Close())
		f.file = nil
	}
	return err
}

// Record implements Audit.
func (f *File) Record(ctx context.Context, e Entry) {
	e = e.filled(ctx, time.Now(), f.opt.Redact)
	if err := f.enqueue(e); err != nil {
		f.lost(e, err)
	}
}

func (f *File) enqueue(e Entry) error {
	f.closing.RLock()
	defer f.closing.RUnlock()
	if f.closed {
		return errors.New("the audit is closed")
	}
	full := time.NewTimer(recordWithin)
	defer full.Stop()
	select {
	case f.queue <- e:
		return nil
	case <-full.C:
		return fmt.Errorf("%d entries wait to be written", maxQueued)
	}
}

// Close writes what waits and closes the file; nil is closed already.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	f.end()
	f.done.Wait()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// end has no more entries taken.
func (f *File) end() {
	f.closing.Lock()
	defer f.closing.Unlock()
	if !f.closed {
		f.closed = true
		close(f.queue)
	}
}

func (f *File) run() {
	for e := range f.queue {
		f.keep(e)
	}
}

func (f *File) keep(e Entry) {
	if err := f.write(e); err != nil {
		f.lost(e, err)
	}
}

func (f *File) write(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if f.file != nil && f.bytes > 0 && f.bytes+int64(len(line)) > f.maxBytes {
		if err := f.rotate(); err != nil {
			return err
		}
	}
	if f.file == nil { // an earlier try to open it has failed
		if err := f.open(); err != nil {
			return err
		}
	}
	n, err := f.file.Write(line)
	f.bytes += int64(n)
	return err
}

// rotate makes room. The names move up before a new file begins.
func (f *File) rotate() error {
	err := f.file.Close()
	f.file = nil
	for i := KeptFiles; i >= 1 && err == nil; i-- {
		from := f.path
		if i > 1 {
			from = fmt.Sprintf("%s.%d", f.path, i-1)
		}
		if err = os.Rename(from, fmt.Sprintf("%s.%d", f.path, i)); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, f.open())
}

// lost logs an entry in the file's place.
func (f *File) lost(e Entry, why error) {
	if f.opt.Lost != nil {
		f.opt.Lost()
	}
	f.opt.Log.Error("an audit entry could not be kept in its file", append(attributes(e), "at", e.At, "error", why)...)
}
