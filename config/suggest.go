package config

import (
	"slices"
	"strings"
)

// suggest says which known name was probably meant, or what there is.
func suggest(got string, known []string) string {
	best, distance := "", 1+max(1, len(got)/3)
	for _, name := range known {
		if d := editDistance(strings.ToLower(got), name); d < distance {
			best, distance = name, d
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return list(known)
}

// list says what there is.
func list(known []string) string {
	if len(known) == 0 {
		return "there is none to choose from"
	}
	known = slices.Clone(known)
	slices.Sort(known)
	const shown = 30 // names; a longer list helps nobody
	if len(known) > shown {
		known = append(known[:shown:shown], "…")
	}
	return "there are " + strings.Join(known, ", ")
}

// editDistance counts the insertions, removals, replacements and swaps of
// neighbours that make a into b. Long names count as far apart.
func editDistance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
