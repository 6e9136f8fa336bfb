package migstub

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write methods.json anew")

// served is the methods that this stub answers.
var served = map[string][]string{
	"instanceGroupManagers": {
		"get", "list", "aggregatedList", "resize", "deleteInstances", "abandonInstances", "recreateInstances",
		"listManagedInstances", "listErrors",
	},
	"regionInstanceGroupManagers": {
		"get", "list", "resize", "deleteInstances", "abandonInstances", "recreateInstances", "listManagedInstances", "listErrors",
	},
	"zoneOperations":       {"get", "list", "wait"},
	"regionOperations":     {"get", "list", "wait"},
	"globalOperations":     {"get", "list", "wait", "aggregatedList"},
	"instances":            {"get", "list", "aggregatedList", "delete"},
	"autoscalers":          {"get", "list", "aggregatedList"},
	"regionAutoscalers":    {"get", "list"},
	"instanceTemplates":    {"get", "list"},
	"instanceGroups":       {"get", "list"}, // gcloud asks them for the sizes
	"regionInstanceGroups": {"get", "list"},
	"zones":                {"get", "list"},
	"regions":              {"get", "list"},
}

// discovery is the part of the official description of the API that is used here.
type discovery struct {
	Parameters map[string]discoveryParam `json:"parameters"`
	Resources  map[string]struct {
		Methods map[string]discoveryMethod `json:"methods"`
	} `json:"resources"`
	Schemas map[string]*schema `json:"schemas"`
}

type discoveryParam struct {
	param
	Location string `json:"location"`
}

type discoveryMethod struct {
	ID         string                    `json:"id"`
	HTTPMethod string                    `json:"httpMethod"`
	Path       string                    `json:"path"`
	Parameters map[string]discoveryParam `json:"parameters"`
	Request    struct {
		Ref string `json:"$ref"`
	} `json:"request"`
	Response struct {
		Ref string `json:"$ref"`
	} `json:"response"`
}

type schema struct {
	Ref                  string             `json:"$ref"`
	Type                 string             `json:"type"`
	Format               string             `json:"format"`
	Enum                 []string           `json:"enum"`
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties *schema            `json:"additionalProperties"`
	Items                *schema            `json:"items"`
}

// readDiscovery reads the document that comes with Google's own client.
func readDiscovery(t testing.TB) *discovery {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "google.golang.org/api").Output()
	require.NoError(t, err)
	raw, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "compute", "v1", "compute-api.json"))
	require.NoError(t, err)
	d := new(discovery)
	require.NoError(t, json.Unmarshal(raw, d))
	return d
}

func queryOf(params map[string]discoveryParam) map[string]param {
	query := make(map[string]param)
	for name, p := range params {
		if p.Location == "query" {
			query[name] = p.param
		}
	}
	return query
}

func (d *discovery) extract(t testing.TB) extract {
	t.Helper()
	x := extract{Common: queryOf(d.Parameters)}
	for resource, verbs := range served {
		for _, verb := range verbs {
			found, ok := d.Resources[resource].Methods[verb]
			require.True(t, ok, "%s.%s is not in the discovery document", resource, verb)
			m := &method{
				ID: strings.TrimPrefix(found.ID, "compute."), Verb: found.HTTPMethod, Path: found.Path,
				Query: queryOf(found.Parameters),
			}
			if found.Request.Ref != "" {
				m.Body = make(map[string]param)
				for name, p := range d.Schemas[found.Request.Ref].Properties {
					m.Body[name] = param{Type: p.Type, Format: p.Format, Enum: p.Enum}
				}
			}
			x.Methods = append(x.Methods, m)
		}
	}
	slices.SortFunc(x.Methods, func(a, b *method) int { return strings.Compare(a.ID, b.ID) })
	return x
}

func TestMethodsAreTheDiscoveryDocuments(t *testing.T) {
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetIndent("", " ")
	require.NoError(t, enc.Encode(readDiscovery(t).extract(t)))
	if *update {
		require.NoError(t, os.WriteFile("methods.json", want.Bytes(), 0o644))
		return
	}
	require.Equal(t, want.String(), string(methodsJSON), "go generate ./internal/migstub")
}
