package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// row is a promise to users, of which at least one test here shows with real processes
// that it is kept. testdata/rows.txt has them.
type row struct{ name, promise string }

// showing is a test that showed rows, and how it ended.
type showing struct {
	test, outcome string
	took          time.Duration
}

// showings are those of this run, by row.
var showings struct {
	sync.Mutex
	of map[string][]showing
}

func readRows() (rows []row, err error) {
	f, err := os.Open("testdata/rows.txt")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, promise, _ := strings.Cut(lines.Text(), " ")
		rows = append(rows, row{name, promise})
	}
	return rows, lines.Err()
}

// shows says which rows a test is about.
func shows(t *testing.T, names ...string) {
	t.Helper()
	rows, err := readRows()
	require.NoError(t, err)
	for _, name := range names {
		require.True(t, slices.ContainsFunc(rows, func(r row) bool { return r.name == name }), "there is no row %s", name)
	}
	began := time.Now()
	t.Cleanup(func() {
		outcome := "ok"
		switch {
		case t.Failed():
			outcome = "FAILED"
		case t.Skipped():
			outcome = "skipped"
		}
		showings.Lock()
		defer showings.Unlock()
		if showings.of == nil {
			showings.of = map[string][]showing{}
		}
		for _, name := range names {
			showings.of[name] = append(showings.of[name], showing{t.Name(), outcome, time.Since(began)})
		}
	})
}

// everyTestRan reports whether no flag has left tests out.
func everyTestRan() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}

// tellOfRows writes a table of the rows and the tests that showed them, and returns the
// rows that no test is about.
func tellOfRows(w io.Writer) (bare []string, err error) {
	rows, err := readRows()
	if err != nil {
		return nil, err
	}
	showings.Lock()
	defer showings.Unlock()
	for _, r := range rows {
		of := showings.of[r.name]
		if len(of) == 0 {
			bare = append(bare, r.name)
			continue
		}
		slices.SortFunc(of, func(a, b showing) int { return strings.Compare(a.test, b.test) })
		_, _ = fmt.Fprintf(w, "%-4s %s\n", r.name, r.promise)
		for _, s := range of {
			_, _ = fmt.Fprintf(w, "     %-7s %s (%.1f s)\n", s.outcome, s.test, s.took.Seconds())
		}
	}
	return bare, nil
}

// checkRows ends a run: with its table, if somebody looks, and with a failure where a
// row is left without a test.
func checkRows() error {
	w := io.Discard
	if testing.Verbose() {
		w = os.Stdout
	}
	bare, err := tellOfRows(w)
	if err == nil && len(bare) > 0 && everyTestRan() {
		err = fmt.Errorf("no test shows %s", strings.Join(bare, ", "))
	}
	return err
}
