package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html"
	"html/template"
	"io/fs"
	"maps"
	"slices"
)

//go:embed assets
var assets embed.FS

var layout = template.Must(template.New("").Funcs(template.FuncMap{"relative": relative}).ParseFS(assets, "assets/*.html"))

// reference is a page that is made of the code: its Markdown.
type reference func() ([]byte, error)

// site is all files of a site, by their paths in it.
type site map[string][]byte

// build makes the site of the sources. It returns every mistake that it finds.
func build(sources fs.FS, references map[string]reference, version string) (site, error) {
	o, err := readOrder(sources)
	if err != nil {
		return nil, err
	}
	b := builder{sources: sources, order: o, version: version, out: site{}}
	wrong := o.forgotten(sources)
	wrong = append(wrong, b.read(references)...)
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	links := linker{sources: sources, pages: map[string]*page{}, shown: map[string][]byte{}, images: map[string][]byte{}}
	for _, p := range b.pages {
		links.pages[p.source] = p
	}
	for _, p := range b.pages {
		links.lead(p)
	}
	links.wrong = append(links.wrong, links.unused()...)
	if len(links.wrong) > 0 {
		return nil, errors.Join(links.wrong...)
	}
	if err := b.write(&links); err != nil {
		return nil, err
	}
	return b.out, nil
}

type builder struct {
	sources fs.FS
	order   order
	version string
	pages   []*page
	parts   []part
	out     site
}

// part is a section with its pages.
type part struct {
	Title string
	About string
	Pages []*page
}

// read reads all pages in their order.
func (b *builder) read(references map[string]reference) (wrong []error) {
	for _, s := range b.order.Sections {
		shown := part{Title: s.Title, About: s.About}
		for _, e := range s.Pages {
			p, err := b.readPage(e, references)
			if err != nil {
				wrong = append(wrong, err)
				continue
			}
			shown.Pages = append(shown.Pages, p)
			b.pages = append(b.pages, p)
		}
		b.parts = append(b.parts, shown)
	}
	return wrong
}

func (b *builder) readPage(e entry, references map[string]reference) (*page, error) {
	p := &page{source: e.Page, about: e.About, nav: e.Title}
	var text []byte
	var err error
	if e.Page != "" {
		text, err = fs.ReadFile(b.sources, e.Page)
	} else {
		make, known := references[e.Made]
		if !known {
			return nil, fmt.Errorf("%s: there is no page %q that is made of the code", orderFile, e.Made)
		}
		p.source = "docs/reference-" + e.Made + ".md" // as if it were there, so that pages can link to it
		text, err = make()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", orderFile, err)
	}
	p.out = place(p.source)
	if err := p.parse(text); err != nil {
		return nil, err
	}
	if p.nav == "" {
		p.nav = p.title
	}
	return p, nil
}

// view is what the layout shows.
type view struct {
	Site       order
	Version    string
	Parts      []part
	Here       string // path of this page in the site
	Title      string
	Contents   []heading
	Body       template.HTML
	Prev, Next *page
}

// Out, Nav and About are for the layout.
func (p *page) Out() string   { return p.out }
func (p *page) Nav() string   { return p.nav }
func (p *page) About() string { return p.about }

// minContents is how many headings make a table of contents worth its place.
const minContents = 2

// contents are the headings of a page's table of contents.
func (p *page) contents() (shown []heading) {
	for _, h := range p.headings {
		if h.Level == 2 || h.Level == 3 {
			shown = append(shown, h)
		}
	}
	if len(shown) < minContents {
		return nil
	}
	return shown
}

func (b *builder) write(links *linker) error {
	wrong := []error{b.show("start.html", view{Here: "index.html", Title: b.order.Title})}
	for i, p := range b.pages {
		if err := p.render(); err != nil {
			return err
		}
		v := view{Here: p.out, Title: p.title, Contents: p.contents(), Body: p.html}
		if i > 0 {
			v.Prev = b.pages[i-1]
		}
		if i+1 < len(b.pages) {
			v.Next = b.pages[i+1]
		}
		wrong = append(wrong, b.show("page.html", v))
	}
	for _, source := range slices.Sorted(maps.Keys(links.shown)) {
		text := template.HTML("<h1>" + html.EscapeString(source) + "</h1>\n<pre tabindex=\"0\"><code>" + html.EscapeString(string(links.shown[source])) + "</code></pre>\n")
		wrong = append(wrong, b.show("page.html", view{Here: place(source), Title: source, Body: text}))
	}
	for source, picture := range links.images {
		wrong = append(wrong, b.add("images/"+source, picture))
	}
	for _, name := range []string{"style.css", "search.js"} {
		text, err := assets.ReadFile("assets/" + name)
		wrong = append(wrong, err, b.add("assets/"+name, text))
	}
	text, err := index(b.pages)
	return errors.Join(append(wrong, err, b.add(indexFile, text))...)
}

// show writes one page by a template of the layout.
func (b *builder) show(name string, v view) error {
	v.Site, v.Version, v.Parts = b.order, b.version, b.parts
	var text bytes.Buffer
	if err := layout.ExecuteTemplate(&text, name, v); err != nil {
		return fmt.Errorf("%s: %w", v.Here, err)
	}
	return b.add(v.Here, text.Bytes())
}

// add adds a file. Two sources in one place would hide one.
func (b *builder) add(path string, text []byte) error {
	if _, taken := b.out[path]; taken {
		return fmt.Errorf("two pages are in the place %s", path)
	}
	b.out[path] = text
	return nil
}
