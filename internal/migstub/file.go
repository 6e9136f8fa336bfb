package migstub

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// maxFile is the largest file that ReadFaults reads [bytes].
const maxFile = 1 << 20

// File is what a file says: a project with its groups and what is wrong with it.
type File struct {
	Seed    uint64        `json:"seed"`
	Project string        `json:"project"`
	Rate    RateLimit     `json:"rate"`
	Faults  Faults        `json:"faults"`
	Groups  []GroupConfig `json:"groups" config:"required"`
}

// New makes the project of the file; now is as in Options.
func (f File) New(now func() time.Time) *Cloud {
	c := New(Options{Now: now, Seed: f.Seed, Project: f.Project, Faults: f.Faults, Rate: f.Rate})
	for _, g := range f.Groups {
		c.AddGroup(g)
	}
	return c
}

// ReadFaults reads a YAML file. It is strict, and its error names every mistake,
// one a line with its path.
func ReadFaults(path string) (File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return File{}, fmt.Errorf("faults: %w", err)
	}
	if info.Size() > maxFile {
		return File{}, fmt.Errorf("faults: %s has %d bytes, at most %d are read", path, info.Size(), maxFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("faults: %w", err)
	}
	f, err := parseFile(text)
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// parseFile goes by way of JSON, whose strict reader the plugin SDK has.
func parseFile(text []byte) (File, error) {
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return File{}, fmt.Errorf("not YAML: %w", err)
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return File{}, fmt.Errorf("a key is not a string: %w", err)
	}
	var f File
	if err := pluginsdk.DecodeConfig(raw, &f); err != nil {
		return File{}, fmt.Errorf("%w", err)
	}
	return f, nil
}

// Check implements pluginsdk.ConfigChecker.
func (f *File) Check(problems *pluginsdk.Problems) {
	if f.Project != "" && !resourceName.MatchString(f.Project) {
		problems.Addf("project", "use a letter, then letters, digits and -")
	}
	if len(f.Groups) > MaxGroups {
		problems.Addf("groups", "%d, use at most %d", len(f.Groups), MaxGroups)
	}
	seen := make(map[string]bool)
	for i, g := range f.Groups {
		if seen[g.Name] {
			problems.Addf(fmt.Sprintf("groups[%d].name", i), "another group has it")
		}
		seen[g.Name] = true
	}
	if r := f.Rate; r.Calls < 0 || r.Per < 0 || (r.Status != 0 && r.Status != 403 && r.Status != 429) {
		problems.Addf("rate", "calls and per must not be negative, status is 403 or 429")
	}
}

// Check implements pluginsdk.ConfigChecker.
func (cfg *GroupConfig) Check(problems *pluginsdk.Problems) { addAll(problems, cfg.mistakes()) }

// Check implements pluginsdk.ConfigChecker.
func (f *Faults) Check(problems *pluginsdk.Problems) { addAll(problems, f.mistakes()) }

func addAll(problems *pluginsdk.Problems, mistakes []error) {
	for _, err := range mistakes {
		problems.Addf("", "%s", err)
	}
}

// UnmarshalJSON reads "60s" or {"p50": "60s", "p95": "120s"}.
func (b *Boot) UnmarshalJSON(data []byte) error {
	type quantiles Boot // without this method
	*b = Boot{}
	if len(data) > 0 && data[0] == '{' {
		return pluginsdk.DecodeConfig(data, (*quantiles)(b))
	}
	return pluginsdk.DecodeConfig(data, &b.P50)
}
