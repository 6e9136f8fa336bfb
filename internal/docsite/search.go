package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
)

// found is what the search can lead to: a page, or what stands under one heading.
// The names are short since there are many.
type found struct {
	Page    string `json:"p"`
	Heading string `json:"h,omitempty"` // none: the page as a whole
	URL     string `json:"u"`           // from the top of the site
	Text    string `json:"t"`
}

// findable are the parts of a page.
func findable(p *page) (all []found) {
	all = []found{{Page: p.title, URL: p.out}}
	var b strings.Builder
	end := func() {
		all[len(all)-1].Text = strings.Join(strings.Fields(b.String()), " ")
		b.Reset()
	}
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			if h.Level > 1 {
				end()
				id, _ := h.AttributeString("id")
				all = append(all, found{Page: p.title, Heading: plain(h, p.markdown), URL: fmt.Sprintf("%s#%s", p.out, id)})
			}
			continue
		}
		words(&b, n, p.markdown)
	}
	end()
	return all
}

// words writes all text of a block.
func words(b *strings.Builder, n ast.Node, source []byte) {
	switch n.Kind() {
	case ast.KindCodeBlock, ast.KindFencedCodeBlock:
		b.WriteString(lines(n, source) + " ")
	case ast.KindParagraph, ast.KindTextBlock, east.KindTableCell:
		b.WriteString(plain(n, source) + " ")
	default:
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			words(b, c, source)
		}
	}
}

// index is the script that the search reads: a page that was opened from a disk may
// load a script, and no other file.
func index(pages []*page) ([]byte, error) {
	var all []found
	for _, p := range pages {
		all = append(all, findable(p)...)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, indexBegins+"%s;\n", text), nil
}
