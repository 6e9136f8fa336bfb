package gitlabtest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// query is one GraphQL query while it is answered.
type query struct {
	s           *Server
	user        *user
	doc         *document
	vars        map[string]any
	path        []any
	errors      []map[string]any
	projectJobs int
}

// connectionFields are those of every list.
var connectionFields = []string{"nodes", "edges", "pageInfo", "count"}

func (s *Server) serveGraphQL(w http.ResponseWriter, r *http.Request) {
	s.noteToken(r, APIToken, bearer(r))
	var body struct {
		Query     string         `json:"query"`
		Variables map[string]any `json:"variables"`
	}
	if !readJSON(w, r, MaxBodyBytes, &body) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	token, known := s.mu.apiTokens[bearer(r)]
	switch {
	case !known:
		answerJSON(w, http.StatusUnauthorized, map[string]any{"errors": []any{map[string]any{"message": "Invalid token"}}})
		return
	case token.scope == NoRights:
		answerJSON(w, http.StatusForbidden, insufficientScope)
		return
	}
	q := &query{s: s, user: &user{token, s}, vars: body.Variables}
	answerJSON(w, http.StatusOK, q.answer(body.Query))
}

func (q *query) answer(text string) map[string]any {
	doc, err := parseQuery(text)
	if err != nil {
		return map[string]any{"errors": []any{map[string]any{"message": err.Error()}}}
	}
	q.doc = doc
	total := q.check(doc.operation, "Query", 0)
	if len(q.errors) > 0 {
		return map[string]any{"errors": q.errors}
	}
	limit := q.s.o.MaxComplexity
	if q.user.admin() {
		limit += 50
	}
	if total > limit {
		q.fail(fmt.Sprintf("Query has complexity of %d, which exceeds max complexity of %d", total, limit))
		return map[string]any{"errors": q.errors}
	}
	answered := map[string]any{"data": q.object(q.user, "Query", doc.operation)}
	if len(q.errors) > 0 {
		answered["errors"] = q.errors
	}
	return answered
}

func (q *query) fail(text string) {
	q.errors = append(q.errors, map[string]any{"message": text, "path": slices.Clone(q.path), "locations": []any{}})
}

// misfit is an error of the check against the schema, with the code that the gem
// graphql gives it.
func (q *query) misfit(code, format string, args ...any) {
	q.fail(fmt.Sprintf(format, args...))
	q.errors[len(q.errors)-1]["extensions"] = map[string]any{"code": code}
}

// check holds selections against the schema, and returns their complexity: one for
// each field, and for a list a hundredth more for each item that a page may have
// (app/graphql/types/base_field.rb).
func (q *query) check(selections []*selection, typeName string, depth int) (complexity int) {
	if depth > maxQueryDepth { // fragments may hold themselves
		q.fail("the query is too deep")
		return 0
	}
	t := schema[typeName]
	for _, sel := range selections {
		switch {
		case sel.spread != "" && q.doc.fragments[sel.spread] == nil:
			q.misfit("undefinedFragment", "Fragment %s was used, but not defined", sel.spread)
		case sel.spread != "":
			complexity += q.check([]*selection{q.doc.fragments[sel.spread]}, typeName, depth+1)
		case sel.on != "" && schema[sel.on] == nil:
			q.misfit("undefinedType", "No such type %s, so it can't be a fragment condition", sel.on)
		case sel.on != "":
			complexity += q.check(sel.inner, sel.on, depth+1)
		case sel.name == "__typename":
		default:
			complexity += q.checkField(sel, t, depth)
		}
	}
	return complexity
}

func (q *query) checkField(sel *selection, t *objectType, depth int) int {
	field, known := t.fields[sel.name]
	if !known {
		q.misfit("undefinedField", "Field '%s' doesn't exist on type '%s'", sel.name, t.name)
		return 0
	}
	for arg := range sel.args {
		paging := field.list && slices.Contains([]string{"first", "last", "after", "before"}, arg)
		if !paging && !slices.Contains(field.args, arg) {
			q.misfit("argumentNotAccepted", "Field '%s' doesn't accept argument '%s'", sel.name, arg)
		}
	}
	if (field.of != "") != (len(sel.inner) > 0) {
		q.misfit("selectionMismatch", "Field '%s' must have selections exactly if it is an object", sel.name)
		return 0
	}
	switch {
	case field.of == "":
		return 1
	case !field.list:
		return 1 + q.check(sel.inner, field.of, depth+1)
	}
	inner := q.checkList(sel, field.of, depth)
	return inner + inner*q.pageSize(q.args(sel))/100
}

func (q *query) checkList(sel *selection, of string, depth int) int {
	inner := 1
	for _, part := range sel.inner {
		switch {
		case part.name == "nodes":
			inner += 1 + q.check(part.inner, of, depth+1)
		case part.name == "edges":
			for _, edge := range part.inner {
				inner += 1 + q.check(edge.inner, of, depth+1)
			}
		case !slices.Contains(connectionFields, part.name):
			q.misfit("undefinedField", "Field '%s' doesn't exist on type '%sConnection'", part.name, of)
		default:
			inner += 1 + len(part.inner)
		}
	}
	return inner
}

func (q *query) args(sel *selection) map[string]any {
	args := make(map[string]any, len(sel.args))
	for name, value := range sel.args {
		if v, is := value.(variableRef); is {
			given, known := q.vars[string(v)]
			if !known {
				given, known = q.doc.defaults[string(v)]
			}
			if !known {
				continue
			}
			value = given
		}
		args[name] = value
	}
	return args
}

func (q *query) pageSize(args map[string]any) int {
	if first, is := args["first"].(float64); is && first >= 0 {
		return min(int(first), MaxPerPage)
	}
	return MaxPerPage
}

// statuses are the wanted ones of a list of jobs, by their REST names.
func (q *query) statuses(args map[string]any) []string {
	given, _ := args["statuses"].([]any)
	var wanted []string
	for _, status := range given {
		name := strings.ToLower(fmt.Sprint(status))
		if !slices.Contains(statuses, name) || name == fmt.Sprint(status) {
			q.misfit("argumentLiteralsIncompatible", "Argument 'statuses' has an invalid value (%v). Expected type '[CiJobStatus!]'.", status)
		}
		wanted = append(wanted, name)
	}
	return wanted
}

// object answers selections of one object. typeName is its type of the schema's;
// concrete types are told apart by fragments.
func (q *query) object(of any, typeName string, selections []*selection) map[string]any {
	out := map[string]any{}
	q.fill(out, of, typeName, selections)
	return out
}

func (q *query) fill(out map[string]any, of any, typeName string, selections []*selection) {
	for _, sel := range selections {
		switch {
		case sel.spread != "":
			q.fill(out, of, typeName, []*selection{q.doc.fragments[sel.spread]})
		case sel.on != "":
			if concrete(typeName) == concrete(sel.on) {
				q.fill(out, of, sel.on, sel.inner)
			}
		case sel.name == "__typename":
			out[sel.alias] = concrete(typeName)
		default:
			q.path = append(q.path, sel.alias)
			out[sel.alias] = q.field(of, schema[typeName].fields[sel.name], sel)
			q.path = q.path[:len(q.path)-1]
		}
	}
}

// concrete is the type of the objects of an interface; each has one kind of them.
func concrete(typeName string) string {
	if t := schema[typeName]; t.of != "" {
		return t.of
	}
	return typeName
}

func (q *query) field(of any, field fieldType, sel *selection) any {
	args := q.args(sel)
	value := field.resolve(q, of, args)
	if value == nil {
		return nil
	}
	switch items, is := value.(list); {
	case field.of == "":
		return value
	case is:
		return q.connection(items, field.of, sel, args)
	default:
		return q.object(value, field.of, sel.inner)
	}
}

func (q *query) connection(all list, of string, sel *selection, args map[string]any) any {
	from := 0
	if cursor, is := args["after"].(string); is {
		last, ok := decodeCursor(cursor)
		if !ok {
			q.fail("Please provide a valid cursor")
			return nil
		}
		from = all.behind(last)
	}
	to := min(from+q.pageSize(args), all.total)
	out := map[string]any{}
	for _, part := range sel.inner {
		switch part.name {
		case "count":
			out[part.alias] = all.total
		case "pageInfo":
			out[part.alias] = pageInfo(all, from, to)
		case "nodes":
			out[part.alias] = each(from, to, func(i int) any { return q.object(all.at(i), of, part.inner) })
		case "edges":
			out[part.alias] = each(from, to, func(i int) any { return q.edge(all.at(i), all.id(i), of, part.inner) })
		}
	}
	return out
}

func each(from, to int, show func(int) any) []any {
	shown := make([]any, 0, to-from)
	for i := from; i < to; i++ {
		shown = append(shown, show(i))
	}
	return shown
}

func (q *query) edge(item any, id int64, of string, selections []*selection) any {
	edge := map[string]any{}
	for _, sel := range selections {
		switch sel.name {
		case "cursor":
			edge[sel.alias] = encodeCursor(id)
		case "node":
			edge[sel.alias] = q.object(item, of, sel.inner)
		}
	}
	return edge
}

func pageInfo(all list, from, to int) any {
	info := map[string]any{"hasNextPage": to < all.total, "hasPreviousPage": from > 0, "startCursor": nil, "endCursor": nil}
	if from < to {
		info["startCursor"], info["endCursor"] = encodeCursor(all.id(from)), encodeCursor(all.id(to-1))
	}
	return info
}

// Cursors hide the id of the last item, as GitLab's do.
func encodeCursor(id int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(`{"id":"` + strconv.FormatInt(id, 10) + `"}`))
}

func decodeCursor(cursor string) (int64, bool) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	var at struct {
		ID string `json:"id"`
	}
	if err != nil || json.Unmarshal(text, &at) != nil {
		return 0, false
	}
	id, err := strconv.ParseInt(at.ID, 10, 64)
	return id, err == nil
}
