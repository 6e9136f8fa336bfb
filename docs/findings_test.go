package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// severity is what a table says of a code: error, warning, or either.
type severity string

// inCode are the finding codes of a file's source. A finding is made by a call of
// add, warn or about with its code among the first two arguments, or as a literal.
func inCode(t *testing.T, path string) map[string]severity {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, read(t, path), parser.SkipObjectResolution)
	require.NoError(t, err)
	found := map[string]severity{}
	note := func(code string, s severity) {
		if old, again := found[code]; again && old != s {
			s = "either"
		}
		found[code] = s
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if name := nameOf(n.Fun); name == "add" || name == "warn" || name == "about" {
				if code, i := codeOf(n.Args); code != "" {
					note(code, severityOf(name, n.Args[i+1]))
				}
			}
		case *ast.CompositeLit:
			fields := fieldsOf(n)
			if code, _ := codeOf([]ast.Expr{fields["Code"]}); code != "" {
				note(code, severityOf("", fields["Severity"]))
			}
		}
		return true
	})
	return found
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	default:
		return ""
	}
}

// codeOf is the first of two arguments that is a text, and where it is.
func codeOf(args []ast.Expr) (code string, at int) {
	for i, arg := range args[:min(len(args), 2)] {
		if text, ok := arg.(*ast.BasicLit); ok && text.Kind == token.STRING {
			code, _ = strconv.Unquote(text.Value)
			return code, i
		}
	}
	return "", 0
}

func fieldsOf(lit *ast.CompositeLit) map[string]ast.Expr {
	fields := map[string]ast.Expr{}
	for _, e := range lit.Elts {
		if field, ok := e.(*ast.KeyValueExpr); ok {
			fields[nameOf(field.Key)] = field.Value
		}
	}
	return fields
}

func severityOf(function string, e ast.Expr) severity {
	switch name := nameOf(e); {
	case function == "warn", name == "FindingWarning", name == "warning":
		return "warning"
	case name == "FindingError":
		return "error"
	case name == "FindingInfo":
		return "info"
	default: // a variable
		return "either"
	}
}

var inTable = regexp.MustCompile("(error|warning|info|either) `([a-z_]+)`")

// documented are the finding codes of a page's table of settings.
func documented(t *testing.T, page string) map[string]severity {
	t.Helper()
	found := map[string]severity{}
	for _, row := range table(read(t, page), "setting") {
		for _, m := range inTable.FindAllStringSubmatch(row[len(row)-1], -1) {
			require.NotContains(t, found, m[2], "%s: twice", page)
			found[m[2]] = severity(m[1])
		}
	}
	return found
}

// Every code that somebody can meet is in the table, and no other.
func TestC27_EveryFindingIsExplained(t *testing.T) {
	host := inCode(t, hostCode+"/inspect.go")
	require.Len(t, host, 9)
	aws := inCode(t, ec2Code+"/findings.go")
	require.Len(t, aws, 19)
	for code, s := range host {
		require.Contains(t, []severity{"", s}, aws[code], "%s means the same everywhere", code)
	}
	maps.Copy(aws, host)
	require.Equal(t, aws, documented(t, "aws.md"))
	require.Equal(t, inCode(t, gceCode+"/findings.go"), documented(t, "gcp.md"))

	around := inCode(t, hostCode+"/inspect_gitlab.go")
	maps.Copy(around, inCode(t, hostCode+"/inspect_sources.go"))
	require.Len(t, around, 13)
	for code := range around {
		require.NotContains(t, aws, code, "it has one meaning")
	}
	require.Equal(t, around, documented(t, "gitlab.md"))
}
