package collect

import (
	"runtime"
	"testing"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
)

// maxBookBytes is what a book of 100,000 pending jobs may keep in memory.
const maxBookBytes = 200 << 20

// heapOf is what make leaves on the heap.
func heapOf(make func() any) (kept any, bytes int64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept = make()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return kept, int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// 100,000 pending jobs: the book is bounded, and the board holds classes, not jobs.
func TestAHundredThousandJobsFit(t *testing.T) {
	kept, bytes := heapOf(func() any {
		b := NewBook(Limits{})
		b.Snapshot(benchSnapshot(100_000))
		next := benchSnapshot(100_000)
		next.Began = at(20)
		b.Snapshot(next) // the second replaces the first
		return b
	})
	t.Logf("100,000 jobs take %d MiB", bytes>>20)
	if bytes > maxBookBytes {
		t.Errorf("100,000 jobs take %d MiB, at most %d are allowed", bytes>>20, maxBookBytes>>20)
	}
	board := kept.(*Book).Board(at(20))
	data, err := encodeBoard(board, MaxBoardBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the board of %d classes takes %d KiB", len(board.Classes), len(data)>>10)
	if limit := len(board.Classes) * 1024; len(data) > limit {
		t.Errorf("the board of %d classes takes %d bytes, at most %d are allowed", len(board.Classes), len(data), limit)
	}
	if n := kept.(*Book).Pending(); n != 100_000 {
		t.Errorf("%d jobs wait", n)
	}
}

// BenchmarkSnapshot100k is a list of 100,000 pending jobs taken in and shown, as every
// interval does.
func BenchmarkSnapshot100k(b *testing.B) {
	book := NewBook(Limits{})
	at := epoch
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s := benchSnapshot(100_000)
		at = at.Add(time.Second)
		s.Began = at
		b.StartTimer()
		book.Snapshot(s)
		if _, err := encodeBoard(book.Board(at), MaxBoardBytes); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/job")
}

// BenchmarkHookOn100k is one hook taken in and shown while 100,000 jobs wait.
func BenchmarkHookOn100k(b *testing.B) {
	book := NewBook(Limits{})
	book.Snapshot(benchSnapshot(100_000))
	id := 0
	b.ReportAllocs()
	for b.Loop() {
		id++
		book.Saw(pending(id%1000+1, 20+id, "linux"))
		book.Saw(over(id%1000+1, 20+id))
		if _, err := encodeBoard(book.Board(at(20)), MaxBoardBytes); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNeeds is what 100,000 listed jobs cost to be classed.
func BenchmarkNeeds(b *testing.B) {
	n := newNeeds(origin, []spillway.Pool{{Capability: spillway.Capability{Origin: origin, Tags: []string{"linux"}}}})
	jobs := make([]gitlab.Job, 1000)
	for i := range jobs {
		jobs[i] = waiting(int64(i), "linux", "pool-"+string(rune('a'+i%26)), "large")
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, ok := n.of(&jobs[i%len(jobs)], nil); !ok {
			b.Fatal("refused")
		}
		i++
	}
}
