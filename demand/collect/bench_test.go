package collect

import (
	"context"
	"iter"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
)

const (
	// maxBookBytes is what a book may keep of a pending job in memory [bytes].
	maxBookBytes = 256
	// maxListBytes is what a list that is read may keep of a job besides [bytes].
	maxListBytes = 48
)

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
	requirePerJob(t, "the book", bytes, maxBookBytes)
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

func requirePerJob(t *testing.T, what string, bytes, limit int64) {
	t.Helper()
	perJob := bytes / 100_000
	t.Logf("%s takes %d bytes a job", what, perJob)
	if perJob > limit || perJob == 0 {
		t.Errorf("%s takes %d bytes a job, at most %d are allowed", what, perJob, limit)
	}
}

// manyJobs lists 100,000 pending jobs, each with texts of its own, as they are decoded.
type manyJobs struct{ API }

func (manyJobs) Jobs(context.Context, gitlab.Scope, ...string) iter.Seq2[gitlab.Job, error] {
	return func(yield func(gitlab.Job, error) bool) {
		for i := range 100_000 {
			text := strconv.Itoa(i)
			j := gitlab.Job{
				ID: int64(5_000_000 + i), Status: strings.Clone("pending"), Name: "test " + text, Stage: strings.Clone("test"),
				Tags: []string{strings.Clone("docker"), "linux-" + strconv.Itoa(i%40)}, Ref: "branch-" + text,
				Project: gitlab.ProjectRef{ID: int64(i%500 + 1), FullPath: "group/app-" + text}, QueuedAt: time.Now(),
			}
			if !yield(j, nil) {
				return
			}
		}
	}
}

func newManyLister(t testing.TB) *lister {
	t.Helper()
	g, err := New(Options{URL: origin, API: manyJobs{}, Store: newMemory().member(), Replica: "one"})
	if err != nil {
		t.Fatal(err)
	}
	return newLister(g)
}

// While a list is read, the one before it is in the book still: what there is of each job
// of both, texts and all, is bounded.
func TestAHundredThousandListedJobsFit(t *testing.T) {
	l := newManyLister(t)
	l.list(t.Context()) // now it knows how long a list is
	kept, bytes := heapOf(func() any { return l.list(t.Context()) })
	requirePerJob(t, "a list", bytes, maxListBytes)
	news := kept.(listNews)
	if news.err != nil || news.jobs != 100_000 {
		t.Fatal(news.jobs, news.err)
	}
	_, bytes = heapOf(func() any {
		b := NewBook(Limits{})
		b.Snapshot(news.snapshot)
		return b
	})
	requirePerJob(t, "the book of a list", bytes, maxBookBytes)
	runtime.KeepAlive(kept)
}

// BenchmarkList100k is a list of 100,000 pending jobs read and taken in, without what
// GitLab and the reading of its answers cost.
func BenchmarkList100k(b *testing.B) {
	l, book := newManyLister(b), NewBook(Limits{})
	b.ReportAllocs()
	for b.Loop() {
		news := l.list(b.Context())
		if news.err != nil {
			b.Fatal(news.err)
		}
		book.Snapshot(news.snapshot)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/job")
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
