package deptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/spillway-ci/spillway"

// cores are the packages that decide. Their answer depends on their arguments and
// on nothing else, so that it can be replayed, simulated and explained.
var cores = []string{"", "/router", "/demand", "/scaler/policy", "/scaler/roster", "/scaler/evidence", "/admission", "/cells"}

// coreImports is all that a core may import besides other cores.
var coreImports = []string{
	"bytes", "cmp", "container/heap", "crypto/sha256", "encoding/binary", "encoding/hex", "encoding/json", "errors", "fmt", "iter", "maps", "math", "math/bits",
	"slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf8", "golang.org/x/text/unicode/norm",
}

// clock is what of package time reads or waits for the wall clock.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

func list(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Deps", module+"/...")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("go list: %s", exit.Stderr)
	}
	require.NoError(t, err)
	pkgs := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else {
			require.NoError(t, err)
		}
		pkgs[p.ImportPath] = p
	}
}

func TestCoresImportOnlyWhatIsPure(t *testing.T) {
	pkgs := list(t)
	for _, core := range cores {
		p, ok := pkgs[module+core]
		require.True(t, ok, "core %q is gone: mend the list of cores", core)
		for _, imp := range p.Imports {
			own, isOwn := strings.CutPrefix(imp, module)
			if slices.Contains(coreImports, imp) || (isOwn && slices.Contains(cores, own)) {
				continue
			}
			t.Errorf("core %s imports %s: a core decides with values; whatever needs a client, a lock, a log or a context is a shell",
				p.ImportPath, imp)
		}
	}
}

func TestCoresHaveNoClockGoroutineOrChannel(t *testing.T) {
	pkgs := list(t)
	for _, core := range cores {
		p := pkgs[module+core]
		for _, file := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, what := range impurities(f) {
				t.Errorf("%s: %s in a core: time is an argument and one owner calls; put it into the shell",
					fset.Position(what.pos), what.name)
			}
		}
	}
}

type impurity struct {
	pos  token.Pos
	name string
}

func impurities(f *ast.File) []impurity {
	var out []impurity
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			out = append(out, impurity{n.Pos(), "a go statement"})
		case *ast.ChanType:
			out = append(out, impurity{n.Pos(), "a channel"})
		case *ast.SelectStmt:
			out = append(out, impurity{n.Pos(), "a select"})
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				if x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					out = append(out, impurity{n.Pos(), "time." + n.Sel.Name})
				}
				if x.Name == "fmt" && strings.HasPrefix(n.Sel.Name, "Print") {
					out = append(out, impurity{n.Pos(), "fmt." + n.Sel.Name})
				}
			}
		}
		return true
	})
	return out
}

// The rule above must be able to fail.
func TestImpuritiesAreSeen(t *testing.T) {
	src := `package x
import ("time"; "fmt")
func f(c chan int) { go f(c); select {}; _ = time.Now(); fmt.Println() }`
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", src, parser.SkipObjectResolution)
	require.NoError(t, err)
	var names []string
	for _, i := range impurities(f) {
		names = append(names, i.name)
	}
	require.Equal(t, []string{"a channel", "a go statement", "a select", "time.Now", "fmt.Println"}, names)
}

// importRule says which packages may import something directly.
type importRule struct {
	imports string // prefix
	only    []string
	why     string
}

// exceptions are packages that fall under a rule and that others may import, too.
var exceptions = map[string][]string{
	// A core of values: what was seen of a machine. Who sees it fills them in.
	module + "/scaler/evidence": {"/demand/collect"},
}

func TestImportDirections(t *testing.T) {
	rules := []importRule{
		{"github.com/redis/go-redis", []string{"/store", "/internal/bench"}, "what replicas share has one implementation and one contract: go through package store"},
		{"github.com/alicebob/miniredis", []string{"/store"}, "the embedded store is package store's business"},
		{"github.com/aws/aws-sdk-go-v2", []string{"/providers/ec2asg", "/cmd/plugins/ec2asg"}, "cloud SDKs live in plugins only"},
		{"google.golang.org/api", []string{"/providers/gcemig", "/cmd/plugins/gcemig"}, "cloud SDKs live in plugins only"},
		{"cloud.google.com/go", []string{"/providers/gcemig", "/cmd/plugins/gcemig"}, "cloud SDKs live in plugins only"},
		{"github.com/hashicorp/go-plugin", []string{"/plugin-sdk", "/providers", "/internal/program", "/internal/fleetingstand"}, "the process boundary is the SDK's and the host's"},
		{module + "/scaler", []string{"/scaler", "/server", "/controlplane", "/cmd/controlplane", "/internal", "/config"}, "an adapter or a core never imports the loop that uses it"},
		{module + "/router/session", []string{"/router/session", "/coordinator", "/server", "/controlplane", "/cmd/controlplane", "/internal"}, "an adapter never imports a shell"},
		{module + "/server", []string{"/server", "/controlplane", "/cmd/controlplane"}, "listeners are the outermost layer"},
	}
	for _, p := range list(t) {
		for _, r := range rules {
			for _, imp := range p.Imports {
				if (imp == r.imports || strings.HasPrefix(imp, r.imports+"/")) && !under(p.ImportPath, r.only) && !under(p.ImportPath, exceptions[imp]) {
					t.Errorf("%s imports %s: %s", p.ImportPath, imp, r.why)
				}
			}
		}
	}
}

func under(importPath string, roots []string) bool {
	for _, root := range roots {
		if importPath == module+root || strings.HasPrefix(importPath, module+root+"/") {
			return true
		}
	}
	return false
}

func TestControlPlaneLinksNoCloudSDK(t *testing.T) {
	p, ok := list(t)[module+"/cmd/controlplane"]
	require.True(t, ok)
	for _, dep := range p.Deps {
		for _, sdk := range []string{"github.com/aws/", "cloud.google.com/", "google.golang.org/api/"} {
			require.False(t, strings.HasPrefix(dep, sdk),
				"cmd/controlplane links %s: providers are out of process, and this is the proof", dep)
		}
	}
}

func TestSDKStaysSmall(t *testing.T) {
	allowed := []string{
		module + "/proto/", "github.com/hashicorp/go-plugin", "github.com/hashicorp/go-hclog", "google.golang.org/grpc", "google.golang.org/protobuf",
		"google.golang.org/genproto/googleapis/rpc",
	}
	p := list(t)[module+"/plugin-sdk"]
	for _, imp := range p.Imports {
		if !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
			continue // standard library
		}
		ok := slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(imp, a) })
		require.True(t, ok, "plugin-sdk imports %s: whatever it imports, every plugin of the world links", imp)
	}
}

func TestProvidersKnowOnlyTheContract(t *testing.T) {
	for path, p := range list(t) {
		if !strings.HasPrefix(path, module+"/providers/") {
			continue
		}
		for _, imp := range p.Imports {
			own, isOwn := strings.CutPrefix(imp, module)
			if own == "/internal/program" && strings.HasPrefix(path, module+"/providers/fleeting") {
				continue // it is a host itself, of somebody's binary: there is one way to run those with care
			}
			if own == "/internal/freeport" && path == module+"/providers/local" {
				continue // its cloud is this machine, where everybody must look for ports in the same way
			}
			if isOwn && own != "/plugin-sdk" && !strings.HasPrefix(imp, path) {
				t.Errorf("%s", fmt.Sprintf("%s imports %s: a provider knows the contract and its cloud, so that anybody could have written it", path, imp))
			}
		}
	}
}
