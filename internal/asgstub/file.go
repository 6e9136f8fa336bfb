package asgstub

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// maxFile bounds a fault file [bytes].
const maxFile = 1 << 20

// File is a fault file: what the whole stand-in does, and its groups.
type File struct {
	Seed      uint64    `json:"seed"`
	AccountID string    `json:"account"`
	Region    string    `json:"region"`
	Rate      RateLimit `json:"rate"`
	Queues    []string  `json:"queues"` // each gets every event
	Faults    Faults    `json:"faults"` // for groups that have none of their own
	// Groups by their names, in the order of the names.
	Groups []GroupConfig `json:"-"`
}

// document is a File as it is written.
type document struct {
	File
	Groups map[string]fileGroup `json:"groups"`
}

// fileGroup is a group without its name, which is its key.
type fileGroup GroupConfig

// SetDefaults implements pluginsdk.ConfigDefaulter.
func (g *fileGroup) SetDefaults() { g.Max = defaultMax }

// defaultMax is a group's max where a file gives none [instances].
const defaultMax = 10

// Check implements pluginsdk.ConfigChecker.
func (g *fileGroup) Check(problems *pluginsdk.Problems) {
	c := GroupConfig(*g)
	c.Name = "group" // the key is checked elsewhere
	c.Faults = nil   // they check themselves
	for _, err := range c.mistakes() {
		problems.Addf("", "%s", err)
	}
}

// Check implements pluginsdk.ConfigChecker.
func (f *Faults) Check(problems *pluginsdk.Problems) {
	for _, err := range f.mistakes() {
		problems.Addf("", "%s", err)
	}
}

// Check implements pluginsdk.ConfigChecker.
func (d *document) Check(problems *pluginsdk.Problems) {
	if d.Rate.Burst < 0 || d.Rate.PerSecond < 0 {
		problems.Addf("rate", "burst and per_second must not be negative")
	}
	if len(d.Groups) > MaxGroups {
		problems.Addf("groups", "%d, at most %d are allowed", len(d.Groups), MaxGroups)
	}
	for name := range d.Groups {
		if name == "" || len(name) > 255 {
			problems.Addf("groups", "use names of 1 to 255 characters")
		}
	}
}

// ReadFaults reads a fault file (YAML). It is strict, and its error names every
// mistake.
func ReadFaults(path string) (File, error) {
	in, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer func() { _ = in.Close() }()
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return File{}, err
	}
	f, err := ParseFaults(data)
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// ParseFaults is ReadFaults of what has been read.
func ParseFaults(data []byte) (File, error) {
	if len(data) > maxFile {
		return File{}, fmt.Errorf("larger than %d bytes", maxFile)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var raw map[string]any
	if err := d.Decode(&raw); err != nil {
		return File{}, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return File{}, errors.New("there is more than one document")
	}
	object, err := json.Marshal(raw)
	if err != nil {
		return File{}, fmt.Errorf("only texts can be keys: %w", err)
	}
	var doc document
	if err := pluginsdk.DecodeConfig(object, &doc); err != nil {
		return File{}, err
	}
	for name, g := range doc.Groups {
		c := GroupConfig(g)
		c.Name = name
		doc.File.Groups = append(doc.File.Groups, c)
	}
	slices.SortFunc(doc.File.Groups, func(a, b GroupConfig) int { return cmp.Compare(a.Name, b.Name) })
	return doc.File, nil
}

// Options are the file's options, on the wall clock.
func (f File) Options() Options {
	return Options{Seed: f.Seed, AccountID: f.AccountID, Region: f.Region, Faults: f.Faults, Rate: f.Rate}
}

// Start makes a stand-in with the file's options, or others, and adds the file's
// queues and groups.
func (f File) Start(opts Options) *Cloud {
	c := New(opts)
	for _, q := range f.Queues {
		c.AddQueue(q)
	}
	for _, g := range f.Groups {
		c.AddGroup(g)
	}
	return c
}
