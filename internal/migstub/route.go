package migstub

import (
	_ "embed"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

//go:generate go test -run TestMethodsAreTheDiscoveryDocuments -update

//go:embed methods.json
var methodsJSON []byte

const (
	basePath = "/compute/v1/"
	// maxBody is the largest body of a request [bytes]: 1000 URLs of instances fit.
	maxBody = 1 << 20
)

// method is one method of the API, as its discovery document describes it.
type method struct {
	ID    string           `json:"id"` // without "compute."
	Verb  string           `json:"verb"`
	Path  string           `json:"path"`
	Query map[string]param `json:"query"`
	Body  map[string]param `json:"body,omitempty"` // fields of the request; nil = it has none

	segments []string
	handle   handler
}

// param is a query parameter or a field of a body.
type param struct {
	Type     string   `json:"type"`
	Format   string   `json:"format,omitempty"`
	Required bool     `json:"required,omitempty"`
	Minimum  string   `json:"minimum,omitempty"`
	Maximum  string   `json:"maximum,omitempty"`
	Enum     []string `json:"enum,omitempty"`
}

// extract is what methods.json holds.
type extract struct {
	Common  map[string]param `json:"common"` // query parameters of every method
	Methods []*method        `json:"methods"`
}

var api = readExtract()

func readExtract() extract {
	var x extract
	if err := json.Unmarshal(methodsJSON, &x); err != nil {
		panic("migstub: methods.json: " + err.Error())
	}
	for _, m := range x.Methods {
		m.segments = strings.Split(m.Path, "/")
		m.handle = handlerOf(m.ID)
	}
	return x
}

// sameOp reports whether op is meant: by its whole id, by its last part, or by "".
func sameOp(meant, op string) bool {
	return meant == "" || meant == op || strings.HasSuffix(op, "."+meant)
}

func knownOn(on string) bool {
	return slices.ContainsFunc(api.Methods, func(m *method) bool { return sameOp(on, m.ID) })
}

// route finds the method of a request and what its path names.
func route(verb, path string) (*method, map[string]string, *apiError) {
	rest, ok := strings.CutPrefix(path, basePath)
	if !ok {
		return nil, nil, errorf(http.StatusNotFound, "notFound", "migstub: %.200q is not under %s", path, basePath)
	}
	segments := strings.Split(rest, "/")
	for _, m := range api.Methods {
		if m.Verb == verb && len(m.segments) == len(segments) {
			if names, ok := match(m.segments, segments); ok {
				return m, names, nil
			}
		}
	}
	return nil, nil, errorf(http.StatusNotFound, "notFound", "migstub: there is no %s %.200q here", verb, path)
}

func match(template, segments []string) (map[string]string, bool) {
	names := make(map[string]string, 3)
	for i, t := range template {
		switch {
		case strings.HasPrefix(t, "{") && segments[i] != "":
			names[strings.Trim(t, "{}")] = segments[i]
		case t != segments[i]:
			return nil, false
		}
	}
	return names, true
}

// checkQuery refuses parameters that the method does not have, and values that
// are not of their type.
func (m *method) checkQuery(q url.Values) *apiError {
	for name, values := range q {
		p, ok := m.Query[name]
		if !ok {
			p, ok = api.Common[name]
		}
		if name == partialSuccess && m.isList() {
			p, ok = param{Type: "boolean"}, true
		}
		if !ok {
			return invalid("Invalid JSON payload received. Unknown name \"%.100s\": Cannot bind query parameter. Field '%.100s' could not be found in request message.", name, name)
		}
		for _, v := range values {
			if !p.allows(v) {
				return invalid("Invalid value for field '%s': '%.100s'.", name, v)
			}
		}
	}
	if or(q.Get("alt"), "json") != "json" || q.Has("fields") || q.Has("callback") {
		return invalid("migstub: answers are whole and in JSON: no alt, fields or callback")
	}
	for name, p := range m.Query {
		if p.Required && q.Get(name) == "" {
			return errorf(http.StatusBadRequest, "required", "Required field '%s' not specified", name)
		}
	}
	return nil
}

// partialSuccess is a parameter of lists that newer revisions of the discovery
// document leave out; gcloud still sends it.
const partialSuccess = "returnPartialSuccess"

func (m *method) isList() bool {
	_, pages := m.Query["pageToken"]
	return pages
}

func (p param) allows(v string) bool {
	switch p.Type {
	case "boolean": // gcloud writes True
		_, err := strconv.ParseBool(v)
		return err == nil
	case "integer":
		return p.allowsNumber(v)
	default:
		return len(p.Enum) == 0 || slices.Contains(p.Enum, v)
	}
}

func (p param) allowsNumber(v string) bool {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return false
	}
	low, high := int64(math.MinInt32), int64(math.MaxInt32)
	if p.Format == "uint32" {
		low, high = 0, math.MaxUint32
	}
	if p.Minimum != "" {
		low, _ = strconv.ParseInt(p.Minimum, 10, 64)
	}
	if p.Maximum != "" {
		high, _ = strconv.ParseInt(p.Maximum, 10, 64)
	}
	return n >= low && n <= high
}

// checkBody refuses fields that the request does not have. Their types are for
// the handler that reads them.
func (m *method) checkBody(body []byte) *apiError {
	if len(strings.TrimSpace(string(body))) == 0 {
		return nil
	}
	if m.Body == nil {
		// Clients send {} where there is nothing to send.
		if strings.TrimSpace(string(body)) != "{}" {
			return invalid("migstub: %s has no request body", m.ID)
		}
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return errorf(http.StatusBadRequest, "parseError", "Parse Error")
	}
	for name := range fields {
		if _, ok := m.Body[name]; !ok {
			return invalid("Invalid JSON payload received. Unknown name \"%.100s\": Cannot find field.", name)
		}
	}
	return nil
}
