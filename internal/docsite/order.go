package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// orderFile says which pages there are, and in what order somebody reads them.
const orderFile = "docs/site.yaml"

// order is that file.
type order struct {
	Title    string
	About    string // what all of it is about: one sentence
	Sections []section
}

// section is one part of the reader's way.
type section struct {
	Title string
	About string // who reads it, and why: one sentence
	Pages []entry
}

// entry names a page, or several.
type entry struct {
	Page  string // path of a Markdown file, from the top of the sources
	Each  string // pattern of such paths: one page for each, by their names
	Made  string // a page that is made of the code: one of references
	Title string // in the navigation; default: the page's own
	About string // what the page is good for
}

// readOrder reads the order of the pages.
func readOrder(sources fs.FS) (order, error) {
	text, err := fs.ReadFile(sources, orderFile)
	if err != nil {
		return order{}, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var o order
	if err := decoder.Decode(&o); err != nil {
		return order{}, fmt.Errorf("%s: %w", orderFile, err)
	}
	return o, o.expand(sources)
}

// expand puts the pages of each pattern in its place.
func (o *order) expand(sources fs.FS) error {
	var wrong []error
	for i := range o.Sections {
		s := &o.Sections[i]
		var all []entry
		for _, e := range s.Pages {
			if e.Each == "" {
				all = append(all, e)
				continue
			}
			found, err := fs.Glob(sources, e.Each)
			if err != nil || len(found) == 0 {
				wrong = append(wrong, fmt.Errorf("%s: no page is like %s", orderFile, e.Each))
			}
			for _, path := range found {
				all = append(all, entry{Page: path, Title: e.Title, About: e.About})
			}
		}
		s.Pages = all
	}
	return errors.Join(wrong...)
}

// inSources are the pages that are files.
func (o *order) inSources() (paths []string) {
	for _, s := range o.Sections {
		for _, e := range s.Pages {
			if e.Page != "" {
				paths = append(paths, e.Page)
			}
		}
	}
	return paths
}

// forgotten are Markdown files of docs/ and of the top folder that are not in the
// order, or twice.
func (o *order) forgotten(sources fs.FS) (wrong []error) {
	ordered := o.inSources()
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		files, err := fs.Glob(sources, pattern)
		if err != nil {
			return []error{err}
		}
		for _, file := range files {
			if !slices.Contains(ordered, file) {
				wrong = append(wrong, fmt.Errorf("%s is not in %s: nobody would find it", file, orderFile))
			}
		}
	}
	slices.Sort(ordered)
	for i := 1; i < len(ordered); i++ {
		if ordered[i] == ordered[i-1] {
			wrong = append(wrong, fmt.Errorf("%s is in %s twice", ordered[i], orderFile))
		}
	}
	return wrong
}

// place is where a source is in the site.
func place(source string) string {
	switch dir, name, _ := cutLast(source, "/"); {
	case name == "README.md" && dir != "":
		return dir + "/index.html"
	case strings.HasSuffix(name, ".md"):
		return strings.TrimPrefix(strings.ToLower(strings.TrimSuffix(source, ".md")), "docs/") + ".html"
	default:
		return "source/" + source + ".html"
	}
}

// cutLast cuts around the last separator; without one all is after it.
func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return "", s, false
}
