package main

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// page is one page of the site.
type page struct {
	source   string // path of its Markdown, or the name of a reference
	out      string // path in the site
	title    string
	nav      string // title in the navigation
	about    string
	headings []heading
	html     template.HTML

	markdown []byte
	tree     ast.Node
}

// heading is one that a reader can be sent to.
type heading struct {
	Level int
	ID    string
	Text  string
}

// has reports whether the page has an anchor.
func (p *page) has(id string) bool {
	for _, h := range p.headings {
		if h.ID == id {
			return true
		}
	}
	return false
}

var markdown = goldmark.New(
	// Alignment as an attribute: the site's policy forbids styles within a page.
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Strikethrough),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(&plainHTML{}, 1))),
)

// parse reads a page's Markdown.
func (p *page) parse(source []byte) error {
	p.markdown = source
	p.tree = markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(&ids{used: map[string]bool{}}))))
	var wrong []error
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			name, _ := id.([]byte)
			p.headings = append(p.headings, heading{n.Level, string(name), plain(n, source)})
		case *ast.HTMLBlock:
			if raw := strings.TrimSpace(lines(n, source)); !strings.HasPrefix(raw, "<!--") {
				wrong = append(wrong, fmt.Errorf("%s: %q is HTML: it would be left out", p.source, raw))
			}
		case *ast.RawHTML:
			wrong = append(wrong, fmt.Errorf("%s: %q is HTML: it would be left out; code stands in backticks", p.source, n.Segments.Value(source)))
		}
		return ast.WalkContinue, nil
	})
	if len(p.headings) == 0 || p.headings[0].Level != 1 {
		return errors.Join(append(wrong, fmt.Errorf("%s: it does not begin with a title", p.source))...)
	}
	p.title = p.headings[0].Text
	for _, h := range p.headings[1:] {
		if h.Level == 1 {
			wrong = append(wrong, fmt.Errorf("%s: a second title, %q", p.source, h.Text))
		}
	}
	return errors.Join(wrong...)
}

// render makes the HTML of what was parsed.
func (p *page) render() error {
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, p.markdown, p.tree); err != nil {
		return fmt.Errorf("%s: %w", p.source, err)
	}
	p.html = template.HTML(b.String()) // goldmark escapes all text, and raw HTML is refused above
	return nil
}

// ids gives headings the anchors that GitLab and GitHub give them, so that a link
// leads to the same place here and there.
type ids struct{ used map[string]bool }

func (s *ids) Generate(value []byte, _ ast.NodeKind) []byte {
	same := slug(string(value))
	id := same
	for n := 1; s.used[id]; n++ {
		id = fmt.Sprintf("%s-%d", same, n)
	}
	s.Put([]byte(id))
	return []byte(id)
}

func (s *ids) Put(value []byte) { s.used[string(value)] = true }

// slug is the anchor of a heading.
func slug(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return r
		default:
			return -1
		}
	}, strings.ToLower(text))
}

// plain is the text of what is within a line.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.AutoLink:
			b.Write(n.Label(source))
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(b.String())
}

// lines is the text of a block that is kept as it stands.
func lines(n ast.Node, source []byte) string {
	var b strings.Builder
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		b.Write(line.Value(source))
	}
	return b.String()
}
