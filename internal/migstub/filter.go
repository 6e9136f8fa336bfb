package migstub

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// term is one comparison of a filter, such as name = "linux" or name eq li.*.
type term struct {
	field, op, value string
	pattern          *regexp.Regexp // of eq and ne
}

// filtered is the resources that a filter expression lets through, as far as the
// expressions of clients go: comparisons with =, !=, :, eq and ne on fields that
// may be nested, in parentheses or not, joined by AND or by nothing. OR and the
// rest of AIP-160 are refused.
func filtered[T any](all []T, expression string) ([]T, *apiError) {
	if strings.TrimSpace(expression) == "" {
		return all, nil
	}
	terms, ok := parseFilter(expression)
	if !ok {
		return nil, invalid("Invalid value for field 'filter': '%.200s'. Invalid list filter expression.", expression)
	}
	return slices.DeleteFunc(all, func(item T) bool {
		raw, err := json.Marshal(item)
		var fields map[string]any
		if err != nil || json.Unmarshal(raw, &fields) != nil {
			return true
		}
		return slices.ContainsFunc(terms, func(t term) bool { return !t.holds(fields) })
	}), nil
}

var comparison = regexp.MustCompile(`^([A-Za-z][\w.-]*)\s*(!=|=|:|\beq\b|\bne\b)\s*(.+)$`)

// parseFilter reads terms, each bare up to AND or in parentheses with an expression
// of its own.
func parseFilter(text string) (terms []term, ok bool) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		if len(terms) > 0 {
			text = strings.TrimPrefix(text, "AND ")
		}
		var more []term
		if text[0] == '(' {
			end := closing(text)
			if end < 0 {
				return nil, false
			}
			if more, ok = parseFilter(text[1:end]); !ok {
				return nil, false
			}
			text = text[end+1:]
		} else {
			bare, rest, _ := strings.Cut(text, " AND ")
			t, ok := parseTerm(bare)
			if !ok {
				return nil, false
			}
			more, text = []term{t}, rest
		}
		terms = append(terms, more...)
	}
	return terms, len(terms) > 0
}

// closing is where the parenthesis that text begins with is closed; -1 if it is
// not. Parentheses in quotes do not count.
func closing(text string) int {
	depth, quote := 0, rune(0)
	for i, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '(':
			depth++
		case r == ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

func parseTerm(text string) (term, bool) {
	found := comparison.FindStringSubmatch(strings.TrimSpace(text))
	if found == nil || strings.Contains(text, " OR ") {
		return term{}, false
	}
	t := term{field: found[1], op: found[2], value: unquote(found[3])}
	if t.op == "eq" || t.op == "ne" {
		pattern, err := regexp.Compile("^(?:" + t.value + ")$") // the whole value must match
		if err != nil {
			return term{}, false
		}
		t.pattern = pattern
	}
	return t, true
}

func unquote(s string) string {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

func (t term) holds(fields map[string]any) bool {
	value, there := lookup(fields, strings.Split(t.field, "."))
	switch t.op {
	case "=":
		return there && value == t.value
	case "!=":
		return value != t.value
	case ":":
		return there && (t.value == "*" || strings.Contains(strings.ToLower(value), strings.ToLower(t.value)))
	case "eq":
		return there && t.pattern.MatchString(value)
	default: // ne
		return !t.pattern.MatchString(value)
	}
}

func lookup(fields map[string]any, path []string) (value string, there bool) {
	var at any = fields
	for _, name := range path {
		object, ok := at.(map[string]any)
		if !ok {
			return "", false
		}
		if at, there = object[name]; !there {
			return "", false
		}
	}
	switch v := at.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	default:
		return "", false
	}
}
