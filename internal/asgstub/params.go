package asgstub

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// params are the parameters of a Query API call. What an operation does not ask
// for is an error in the end: nothing is ignored. The first mistake is kept.
type params struct {
	values url.Values
	used   map[string]bool
	err    *failure
}

func newParams(v url.Values) *params {
	return &params{values: v, used: map[string]bool{"Action": true, "Version": true}}
}

func (p *params) fail(f *failure) {
	if p.err == nil {
		p.err = f
	}
}

// done is the first mistake, or an error about what nobody asked for.
func (p *params) done() error {
	if p.err != nil {
		return p.err
	}
	var unknown []string
	for key := range p.values {
		if !p.used[key] {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return invalid("the stand-in does not know the parameter %s", strings.Join(unknown, ", "))
	}
	return nil
}

func (p *params) has(name string) bool { return p.values.Has(name) }

func (p *params) str(name string) string {
	p.used[name] = true
	return p.values.Get(name)
}

// need is a text that must be there.
func (p *params) need(name string) string {
	s := p.str(name)
	if s == "" {
		p.fail(missing(name))
	}
	return s
}

func missing(name string) *failure {
	return invalid("1 validation error detected: Value null at '%s' failed to satisfy constraint: Member must not be null",
		strings.ToLower(name[:1])+name[1:])
}

// int is a number, or otherwise where there is none.
func (p *params) int(name string, otherwise int) int {
	s := p.str(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		p.fail(&failure{code: codeMalformed, message: fmt.Sprintf("%s is not a number", name), status: 400})
	}
	return n
}

func (p *params) needInt(name string) int {
	if !p.has(name) {
		p.fail(missing(name))
	}
	return p.int(name, 0)
}

func (p *params) bool(name string, otherwise bool) bool {
	switch s := p.str(name); s {
	case "":
		return otherwise
	case "true":
		return true
	case "false":
		return false
	default:
		p.fail(&failure{code: codeMalformed, message: fmt.Sprintf("%s is neither true nor false", name), status: 400})
		return otherwise
	}
}

func (p *params) needBool(name string) bool {
	if !p.has(name) {
		p.fail(missing(name))
	}
	return p.bool(name, false)
}

// prefixes are name.1, name.2 … as far as there are parameters that begin so.
func (p *params) prefixes(name string) (out []string) {
	for i := 1; ; i++ {
		prefix := name + "." + strconv.Itoa(i)
		if !p.any(prefix) {
			return out
		}
		out = append(out, prefix)
	}
}

func (p *params) any(prefix string) bool {
	for key := range p.values {
		if key == prefix || strings.HasPrefix(key, prefix+".") {
			return true
		}
	}
	return false
}

// list is a list of texts: name.1 …
func (p *params) list(name string) (out []string) {
	p.used[name] = true // an empty list is sent as "name="
	for i := 1; p.has(name + "." + strconv.Itoa(i)); i++ {
		out = append(out, p.str(name+"."+strconv.Itoa(i)))
	}
	return out
}

// filter is one filter of a request: any of the values will do.
type filter struct {
	name   string
	values []string
}

// filters reads prefix.N.Name and prefix.N.<values>.M.
func (p *params) filters(prefix, values string) (out []filter) {
	for _, at := range p.prefixes(prefix) {
		out = append(out, filter{p.need(at + ".Name"), p.list(at + "." + values)})
	}
	return out
}

// page is which part of a list is asked for.
type page struct {
	size  int
	after string // the key of the last item of the page before
}

// page reads MaxRecords and NextToken. of marks the tokens of this list, so that
// one of another list is refused.
func (p *params) page(of string, size, maxSize, limit int) page {
	n := p.int("MaxRecords", size)
	if n < 1 || n > maxSize {
		p.fail(invalid("1 validation error detected: Value '%d' at 'maxRecords' failed to satisfy constraint: Member must have value less than or equal to %d and at least 1", n, maxSize))
	}
	if limit > 0 {
		n = min(n, limit)
	}
	return page{size: n, after: p.token(of)}
}

func (p *params) token(of string) string {
	s := p.str("NextToken")
	if s == "" {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	key, ok := strings.CutPrefix(string(raw), of+"\x00")
	if err != nil || !ok {
		p.fail(&failure{code: codeToken, message: "The token '" + s + "' is not valid.", status: 400})
	}
	return key
}

func newToken(of, key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(of + "\x00" + key))
}

// cut is the page of items and the token of the next one; key names an item.
func cut[T any](items []T, pg page, of string, key func(T) string) (out []T, next string) {
	if pg.after != "" {
		at := slices.IndexFunc(items, func(v T) bool { return key(v) == pg.after })
		items = items[at+1:]
	}
	if len(items) <= pg.size {
		return items, ""
	}
	return items[:pg.size], newToken(of, key(items[pg.size-1]))
}

// timeText reads a moment as the services take it.
func timeText(s string) (time.Time, error) { return time.Parse(time.RFC3339, s) }
