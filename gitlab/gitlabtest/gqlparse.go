package gitlabtest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/scanner"
)

// maxQueryDepth bounds the nesting of a query [levels].
const maxQueryDepth = 20

// selection is one field of a query, or a fragment (on != "" or spread != "").
type selection struct {
	alias, name string
	args        map[string]any
	on          string // of an inline fragment
	spread      string // the name of a fragment
	inner       []*selection
}

// variableRef is an argument that is a variable; enum one that is a bare word.
type (
	variableRef string
	enum        string
)

type document struct {
	operation []*selection
	defaults  map[string]any // of variables
	fragments map[string]*selection
}

// parseQuery reads the part of GraphQL that clients of GitLab use: one query,
// variables, aliases, fragments. Directives and mutations are errors.
func parseQuery(text string) (doc *document, err error) {
	p := &parser{}
	p.lex.Init(strings.NewReader(text))
	p.lex.Mode = scanner.ScanIdents | scanner.ScanInts | scanner.ScanFloats | scanner.ScanStrings | scanner.ScanComments | scanner.SkipComments
	p.lex.Error = func(_ *scanner.Scanner, msg string) { p.fail(msg) }
	defer func() {
		if failed, ok := recover().(syntaxError); ok {
			doc, err = nil, failed
		}
	}()
	p.next()
	return p.document(), nil
}

type syntaxError struct{ error }

type parser struct {
	lex   scanner.Scanner
	tok   rune
	text  string
	depth int
}

func (p *parser) fail(what string) {
	panic(syntaxError{fmt.Errorf("syntax error at %s: %s", p.lex.Pos(), what)})
}

func (p *parser) next() {
	for {
		p.tok, p.text = p.lex.Scan(), p.lex.TokenText()
		switch p.tok {
		case '#': // a comment to the end of the line
			p.skipLine()
		case ',':
		default:
			return
		}
	}
}

func (p *parser) is(text string) bool { return p.text == text }

func (p *parser) accept(text string) bool {
	if !p.is(text) {
		return false
	}
	p.next()
	return true
}

// skip passes over any number of some tokens, in any order.
func (p *parser) skip(some ...string) {
	for slices.Contains(some, p.text) {
		p.next()
	}
}

func (p *parser) skipLine() {
	c := p.lex.Next()
	for c != '\n' && c != scanner.EOF {
		c = p.lex.Next()
	}
}

func (p *parser) want(text string) {
	if !p.accept(text) {
		p.fail(fmt.Sprintf("%q where %q should be", p.text, text))
	}
}

func (p *parser) ident() string {
	if p.tok != scanner.Ident {
		p.fail(fmt.Sprintf("%q where a name should be", p.text))
	}
	name := p.text
	p.next()
	return name
}

func (p *parser) document() *document {
	doc := &document{defaults: map[string]any{}, fragments: map[string]*selection{}}
	for p.tok != scanner.EOF {
		switch {
		case p.is("{"):
			doc.operation = p.selections()
		case p.accept("query"):
			if p.tok == scanner.Ident {
				p.next()
			}
			if p.accept("(") {
				p.variables(doc)
			}
			doc.operation = p.selections()
		case p.accept("fragment"):
			name := p.ident()
			p.want("on")
			on := p.ident()
			doc.fragments[name] = &selection{on: on, inner: p.selections()}
		default:
			p.fail(fmt.Sprintf("%q is not modelled", p.text))
		}
	}
	if doc.operation == nil {
		panic(syntaxError{errors.New("there is no query")})
	}
	return doc
}

func (p *parser) variables(doc *document) {
	for !p.accept(")") {
		p.want("$")
		name := p.ident()
		p.want(":")
		p.skip("[")
		p.ident()
		p.skip("]", "!")
		if p.accept("=") {
			doc.defaults[name] = p.value()
		}
	}
}

func (p *parser) selections() []*selection {
	if p.depth++; p.depth > maxQueryDepth {
		p.fail("it is too deep")
	}
	defer func() { p.depth-- }()
	p.want("{")
	var all []*selection
	for !p.accept("}") {
		all = append(all, p.selection())
	}
	return all
}

func (p *parser) selection() *selection {
	if p.accept(".") {
		p.want(".")
		p.want(".")
		if p.accept("on") {
			return &selection{on: p.ident(), inner: p.selections()}
		}
		return &selection{spread: p.ident()}
	}
	s := &selection{name: p.ident(), args: map[string]any{}}
	s.alias = s.name
	if p.accept(":") {
		s.name = p.ident()
	}
	if p.accept("(") {
		for !p.accept(")") {
			name := p.ident()
			p.want(":")
			s.args[name] = p.value()
		}
	}
	if p.is("{") {
		s.inner = p.selections()
	}
	return s
}

func (p *parser) value() any {
	switch {
	case p.accept("$"):
		return variableRef(p.ident())
	case p.accept("["):
		list := []any{}
		for !p.accept("]") {
			list = append(list, p.value())
		}
		return list
	case p.tok == scanner.String:
		text, err := strconv.Unquote(p.text)
		if err != nil {
			p.fail("a broken string")
		}
		p.next()
		return text
	case p.tok == scanner.Int:
		var n float64
		_, _ = fmt.Sscan(p.text, &n)
		p.next()
		return n
	}
	switch word := p.ident(); word {
	case "true", "false":
		return word == "true"
	case "null":
		return nil
	default:
		return enum(word)
	}
}
