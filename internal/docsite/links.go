package main

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
)

// maxSource bounds a file that is shown as it is [bytes]. What is longer is no
// reading, and belongs into a link to the sources.
const maxSource = 256 << 10

// linker leads the links of all pages to their places in the site.
type linker struct {
	sources fs.FS
	pages   map[string]*page  // by source
	shown   map[string][]byte // files that are no pages and that a page links to, by path
	images  map[string][]byte // by path
	wrong   []error
}

// lead leads all links of a page. Those that lead nowhere are in wrong.
func (l *linker) lead(p *page) {
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			l.name(p, n)
			n.Destination = []byte(l.target(p, string(n.Destination)))
		case *ast.Image:
			n.Destination = []byte(l.image(p, string(n.Destination)))
			if plain(n, p.markdown) == "" {
				l.fault(p, "the image %s has no text for those who don't see it", n.Destination)
			}
		}
		return ast.WalkContinue, nil
	})
}

func (l *linker) fault(p *page, format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Errorf("%s: %s", p.source, fmt.Sprintf(format, args...)))
}

// external reports whether a link leaves the sources.
func external(destination string) bool {
	return strings.HasPrefix(destination, "https://") || strings.HasPrefix(destination, "http://")
}

// name gives a link whose text is a page's file the page's title, or its heading's text:
// files have no names in the site.
func (l *linker) name(p *page, n *ast.Link) {
	file, anchor, _ := strings.Cut(string(n.Destination), "#")
	text := plain(n, p.markdown)
	there, ok := l.pages[path.Join(path.Dir(p.source), file)]
	if !ok || text != path.Base(file) && text != there.source {
		return
	}
	title := there.title
	for _, h := range there.headings {
		if anchor != "" && h.ID == anchor {
			title = h.Text
		}
	}
	n.RemoveChildren(n)
	n.AppendChild(n, ast.NewString([]byte(title)))
}

// target is where a link of a page leads in the site.
func (l *linker) target(p *page, destination string) string {
	if external(destination) {
		return destination
	}
	file, anchor, _ := strings.Cut(destination, "#")
	if file == "" {
		if !p.has(anchor) {
			l.fault(p, "links to %s, and has no such heading", destination)
		}
		return destination
	}
	source := path.Join(path.Dir(p.source), file)
	if there, ok := l.pages[source]; ok {
		if anchor != "" && !there.has(anchor) {
			l.fault(p, "links to %s, and %s has no such heading", destination, source)
		}
		return withAnchor(relative(p.out, there.out), anchor)
	}
	if _, known := l.shown[source]; !known {
		text, err := l.text(source)
		if err != nil {
			l.fault(p, "links to %s: %v", destination, err)
			return destination
		}
		l.shown[source] = text
	}
	if anchor != "" {
		l.fault(p, "links to %s: a file that is no page has no headings", destination)
	}
	return relative(p.out, place(source))
}

func withAnchor(target, anchor string) string {
	if anchor == "" {
		return target
	}
	return target + "#" + anchor
}

// text is a file that can be shown.
func (l *linker) text(source string) ([]byte, error) {
	if path.Ext(source) == ".md" {
		return nil, fmt.Errorf("it is not in %s", orderFile)
	}
	text, err := fs.ReadFile(l.sources, source)
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxSource:
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(text), maxSource)
	case !utf8.Valid(text):
		return nil, fmt.Errorf("it is no text")
	}
	return text, nil
}

// image is where an image of a page is in the site.
func (l *linker) image(p *page, destination string) string {
	if external(destination) {
		l.fault(p, "shows %s: the site asks no network for anything", destination)
		return destination
	}
	source := path.Join(path.Dir(p.source), destination)
	picture, err := fs.ReadFile(l.sources, source)
	if err != nil {
		l.fault(p, "shows %s: %v", destination, err)
		return destination
	}
	l.images[source] = picture
	return relative(p.out, "images/"+source)
}

// pictures are the kinds of files of docs/ that a page must show.
var pictures = []string{".png", ".svg", ".jpg", ".jpeg", ".gif", ".webp"}

// unused are images below docs/ that no page shows.
func (l *linker) unused() (wrong []error) {
	err := fs.WalkDir(l.sources, "docs", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !slices.Contains(pictures, path.Ext(name)) {
			return err
		}
		if _, shown := l.images[name]; !shown {
			wrong = append(wrong, fmt.Errorf("%s: no page shows it", name))
		}
		return nil
	})
	if err != nil {
		wrong = append(wrong, err)
	}
	return wrong
}

// relative is the link from one place in the site to another.
func relative(from, to string) string {
	up := strings.Split(path.Dir(from), "/")
	if up[0] == "." {
		up = nil
	}
	down := strings.Split(to, "/")
	for len(up) > 0 && len(down) > 1 && up[0] == down[0] {
		up, down = up[1:], down[1:]
	}
	return strings.Repeat("../", len(up)) + strings.Join(down, "/")
}
