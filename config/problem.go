package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrInvalid is what errors.Is finds in every error about the content of a file.
var ErrInvalid = errors.New("invalid configuration")

// MaxProblems bounds what one error lists [problems]: a file that is not a
// configuration at all should not print itself.
const MaxProblems = 100

// maxKept bounds what is collected before it is sorted and cut to MaxProblems.
const maxKept = 10 * MaxProblems

// Problem is one thing that is wrong, or, as a warning, probably not meant.
type Problem struct {
	File string
	Line int    // 0 = not known
	Path string // "pools[1].policy.max"; empty = the file as a whole
	Text string // what is wrong and what to do about it
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Path != "" {
		b.WriteString(p.Path)
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Error is every problem of a file, in its order.
type Error struct {
	Problems []Problem
	Omitted  int // problems beyond MaxProblems
}

func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	if e.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.Omitted))
	}
	return strings.Join(lines, "\n")
}

// Is matches ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// inOrder sorts problems as a reader meets them; those of one line stay as found.
func inOrder(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return problems
}

func asError(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	problems = inOrder(problems)
	omitted := max(0, len(problems)-MaxProblems)
	return &Error{Problems: problems[:len(problems)-omitted], Omitted: omitted}
}
