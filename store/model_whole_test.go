package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/store"
)

// notInModels are the operations that are in no model, and why.
var notInModels = map[string]string{
	"Close": "ends the store: the contract says what becomes of those who listen",
	"Ping":  "changes and shows nothing",
}

// notInFaults are the operations that are not failed, and why.
var notInFaults = map[string]string{
	"Close":     "talks to nobody",
	"CountAges": "talks to nobody",
}

// Every operation of the store is done to a model, too, and is tried with a server that
// goes away and one that hangs. Whoever adds one adds it there.
func TestEveryOperationIsInTheModels(t *testing.T) {
	t.Parallel()
	inModels, inFaults := map[string]bool{}, map[string]bool{}
	for _, f := range testFuncs(t) {
		if strings.HasSuffix(receiver(f), "Model") {
			called(f, inModels, func(x ast.Expr) bool {
				sel, ok := x.(*ast.SelectorExpr)
				return ok && sel.Sel.Name == "s"
			})
		}
		if strings.HasSuffix(f.Name.Name, "Operations") {
			called(f, inFaults, func(x ast.Expr) bool {
				id, ok := x.(*ast.Ident)
				return ok && id.Name == "s"
			})
		}
	}
	operations := reflect.TypeFor[*store.Store]()
	for i := range operations.NumMethod() {
		name := operations.Method(i).Name
		check(t, name, inModels[name], notInModels[name], "no model of model_*_test.go does it")
		check(t, name, inFaults[name], notInFaults[name], "fault_test.go does not fail it")
	}
}

func check(t *testing.T, name string, is bool, why, complaint string) {
	t.Helper()
	if why != "" {
		require.False(t, is, "%s is there after all: it needs no excuse", name)
		return
	}
	require.True(t, is, "%s: %s", name, complaint)
}

// testFuncs are the functions of this package's tests.
func testFuncs(t *testing.T) (all []*ast.FuncDecl) {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				all = append(all, f)
			}
		}
	}
	return all
}

// receiver names the type that a method is of.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	x := f.Recv.List[0].Type
	if star, ok := x.(*ast.StarExpr); ok {
		x = star.X
	}
	id, ok := x.(*ast.Ident)
	if !ok {
		return ""
	}
	return id.Name
}

// called notes the methods that f calls on what is the store.
func called(f *ast.FuncDecl, methods map[string]bool, isStore func(ast.Expr) bool) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && isStore(sel.X) {
				methods[sel.Sel.Name] = true
			}
		}
		return true
	})
}
