package asgstub

import (
	"strconv"
	"time"
)

// xmlWriter writes the answers of the Query APIs. There is no indentation, as in
// the services' own.
type xmlWriter struct{ b []byte }

// in writes an element around what f writes.
func (w *xmlWriter) in(name string, f func()) {
	w.open(name)
	f()
	w.close(name)
}

func (w *xmlWriter) openRoot(name, namespace string) { w.open(name + ` xmlns="` + namespace + `"`) }

func (w *xmlWriter) open(name string) {
	w.b = append(w.b, '<')
	w.b = append(w.b, name...)
	w.b = append(w.b, '>')
}

func (w *xmlWriter) close(name string) {
	w.b = append(w.b, '<', '/')
	w.b = append(w.b, name...)
	w.b = append(w.b, '>')
}

func (w *xmlWriter) text(name, value string) {
	w.open(name)
	w.escape(value)
	w.close(name)
}

// some writes an element unless it would be empty.
func (w *xmlWriter) some(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

func (w *xmlWriter) int(name string, value int) {
	w.open(name)
	w.b = strconv.AppendInt(w.b, int64(value), 10)
	w.close(name)
}

func (w *xmlWriter) float(name string, value float64) {
	w.text(name, strconv.FormatFloat(value, 'f', -1, 64))
}

func (w *xmlWriter) bool(name string, value bool) {
	w.open(name)
	w.b = strconv.AppendBool(w.b, value)
	w.close(name)
}

// time writes a moment; the zero time is left out.
func (w *xmlWriter) time(name string, value time.Time) {
	if value.IsZero() {
		return
	}
	w.open(name)
	w.b = value.UTC().AppendFormat(w.b, "2006-01-02T15:04:05.000Z")
	w.close(name)
}

// strings writes a list of texts.
func (w *xmlWriter) strings(name, item string, values []string) {
	w.in(name, func() {
		for _, v := range values {
			w.text(item, v)
		}
	})
}

func (w *xmlWriter) escape(s string) {
	from := 0
	for i := range len(s) {
		var as string
		switch s[i] {
		case '&':
			as = "&amp;"
		case '<':
			as = "&lt;"
		case '>':
			as = "&gt;"
		case '"':
			as = "&quot;"
		case '\r':
			as = "&#xD;"
		default:
			continue
		}
		w.b = append(w.b, s[from:i]...)
		w.b = append(w.b, as...)
		from = i + 1
	}
	w.b = append(w.b, s[from:]...)
}
