package pluginsdk

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// maxProblems bounds the mistakes that one error names [mistakes].
	maxProblems = 50
	// maxKeyBytes bounds a key that is repeated in an error [bytes].
	maxKeyBytes = 64
	// plainKey is what a key is made of that needs no quotes.
	plainKey = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
)

// Problems collects the mistakes of a part of a configuration.
type Problems struct {
	found *mistakes
	path  string // of the part
}

// Addf adds a mistake of the setting at path, relative to the part, such as "max" or
// "groups[1].name"; "" is the part as a whole. A setting that could not be read at
// all, or one within it, has its mistake already: another is left out.
func (p *Problems) Addf(path, format string, args ...any) {
	full := joinPath(p.path, path)
	for at := full; at != ""; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		if p.found.unread[at] {
			return
		}
	}
	p.found.add(full, fmt.Sprintf(format, args...))
}

// in is the collector for a setting of the part.
func (p *Problems) in(name string) *Problems {
	return &Problems{p.found, joinPath(p.path, name)}
}

// unread adds the reason why the part could not be read; it reports whether there
// is none. The mistakes of a nested DecodeConfig are taken over one by one.
func (p *Problems) unread(err error) bool {
	if err == nil {
		return true
	}
	var nested *mistakes
	if !errors.As(err, &nested) {
		p.found.add(p.path, err.Error())
		p.found.unread[p.path] = true
		return false
	}
	for _, m := range nested.list {
		p.found.add(joinPath(p.path, m.path), m.text)
	}
	for path := range nested.unread {
		p.found.unread[joinPath(p.path, path)] = true
	}
	p.found.more += nested.more
	return false
}

// mistakes is the error that names all of them.
type mistakes struct {
	list   []mistake
	more   int             // that are not in list
	unread map[string]bool // paths of values that could not be read
}

type mistake struct{ path, text string }

func (m *mistakes) add(path, text string) {
	if len(m.list) == maxProblems {
		m.more++
		return
	}
	m.list = append(m.list, mistake{path, text})
}

func (m *mistakes) Error() string {
	lines := make([]string, len(m.list), len(m.list)+1)
	for i, mistake := range m.list {
		lines[i] = mistake.text
		if mistake.path != "" {
			lines[i] = mistake.path + ": " + mistake.text
		}
	}
	if m.more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", m.more))
	}
	return strings.Join(lines, "\n")
}

func joinPath(path, name string) string {
	if path == "" || name == "" || name[0] == '[' {
		return path + name
	}
	return path + "." + name
}

func pathIndex(i int) string { return "[" + strconv.Itoa(i) + "]" }

// pathKey is a key as a part of a path: quoted where it would not read as one.
func pathKey(key string) string {
	plain := key != "" && strings.Trim(key, plainKey) == ""
	if len(key) > maxKeyBytes {
		key = key[:maxKeyBytes] + "…"
	}
	if plain {
		return key
	}
	return strconv.Quote(key)
}
