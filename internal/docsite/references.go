package main

import (
	"context"
	"fmt"
	"strings"
)

// references are the pages that are made of the code of a source folder, by name.
func references(ctx context.Context, source string) map[string]reference {
	all := map[string]reference{"settings": settings, "metrics": metrics}
	for _, c := range commands {
		all[c.name] = func() ([]byte, error) { return c.reference(ctx, source) }
	}
	return all
}

// row writes a row of a table.
func row(b *strings.Builder, cells ...string) {
	for _, cell := range cells {
		// A bar ends a cell, within code too.
		fmt.Fprintf(b, "| %s ", strings.ReplaceAll(strings.Join(strings.Fields(cell), " "), "|", "\\|"))
	}
	b.WriteString("|\n")
}

// header writes the head of a table.
func header(b *strings.Builder, cells ...string) {
	b.WriteString("\n")
	row(b, cells...)
	b.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
}

// quoted is text as code, or nothing.
func quoted(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

var escapes = strings.NewReplacer("*", "\\*", "_", "\\_", "<", "\\<", "[", "\\[", "#", "\\#")

// prose is text in which nothing but code is markup.
func prose(text string) string { return escapes.Replace(text) }
