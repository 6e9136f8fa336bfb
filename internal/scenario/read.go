package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/providers/fake"
)

// storyReader reads one scenario; what later sections refer to is read first.
type storyReader struct {
	*reader
	story   *Scenario
	dir     string // paths in the scenario are relative to it
	book    *jobBook
	at      string                        // the path of the story: of another cell's
	pools   []string                      // names; nil if the configuration is not valid
	cells   map[string]*storyReader       // of the other cells
	reloads map[*yaml.Node]*config.Config // patch → the configuration from then on
}

// Load reads the scenario at path. Its error names every mistake and matches
// config.ErrInvalid, unless a file could not be read.
func Load(path string) (*Scenario, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse reads a scenario from data; name stands in for its file, and what it
// refers to is looked for beside it.
func Parse(name string, data []byte) (*Scenario, error) {
	s := &storyReader{
		reader: &reader{file: name},
		dir:    filepath.Dir(name),
		book:   newJobBook(),
		story: &Scenario{
			Path: name, Seed: DefaultSeed, Mode: Orchestrate, Duration: DefaultDuration, Replicas: 1,
			Clouds: make(map[string]fake.Config),
		},
	}
	root, err := document(data)
	if err != nil {
		s.failf(0, "", "%s", err)
	} else {
		s.read(root)
	}
	if len(s.problems) > 0 {
		return nil, s.invalid()
	}
	return s.story, nil
}

func (s *storyReader) invalid() error {
	slices.SortStableFunc(s.problems, func(a, b config.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	omitted := max(0, len(s.problems)-config.MaxProblems)
	return &config.Error{Problems: s.problems[:len(s.problems)-omitted], Omitted: omitted}
}

// document is the root mapping of exactly one YAML document.
func document(data []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the file is empty")
	case err != nil:
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the first YAML document; use one file with one document")
	}
	if doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("a scenario is settings (key: value)")
	}
	return doc.Content[0], nil
}

// read takes the sections in the order in which they refer to each other.
func (s *storyReader) read(root *yaml.Node) {
	sections := make(map[string]*yaml.Node)
	keep := func(name string) field {
		return func(n *yaml.Node, _ string) { sections[name] = n }
	}
	var configFile, trace string
	fields := map[string]field{
		"replicas": s.count(&s.story.Replicas), "tick": s.duration(&s.story.Tick),
		"config": keep("config"), "config_file": s.text(&configFile), "cloud": keep("cloud"),
		"jobs": keep("jobs"), "trace": s.text(&trace), "events": keep("events"), "controllers": keep("controllers"),
	}
	if s.at == "" { // another cell's story has these of the whole
		fields["seed"] = scalar(s.reader, &s.story.Seed, "a whole number of 0 or more", parseSeed)
		fields["mode"] = oneOf(s.reader, &s.story.Mode, Orchestrate, Route, Observe)
		fields["duration"] = s.duration(&s.story.Duration)
		fields["cells"], fields["expect"] = keep("cells"), keep("expect")
	}
	seen := s.mapping(root, s.at, fields)
	if seen["duration"] && s.story.Duration == 0 {
		s.failf(root.Line, "duration", "must be above 0s")
	}
	if s.story.Replicas < 1 || s.story.Replicas > MaxReplicas {
		s.failf(root.Line, s.path("replicas"), "%d: use 1 to %d", s.story.Replicas, MaxReplicas)
	}
	s.readConfig(root.Line, sections["config"], configFile)
	s.readMode(root.Line, seen["mode"])
	s.readTick(root.Line, seen["tick"])
	s.readReloads(sections["events"])
	s.readClouds(sections["cloud"])
	s.readJobs(sections["jobs"], trace)
	s.readControllers(sections["controllers"])
	s.readCells(root.Line, sections["cells"])
	if n := sections["events"]; n != nil {
		s.list(n, s.path("events"), s.event)
	}
	if len(s.story.Events) > MaxEvents {
		s.failf(root.Line, s.path("events"), "more than %d", MaxEvents)
	}
	if n := sections["expect"]; n != nil {
		s.list(n, "expect", s.expectation)
	}
	slices.SortStableFunc(s.story.Jobs, func(a, b Job) int { return cmp.Compare(a.At, b.At) })
	slices.SortStableFunc(s.story.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// path is where a section of this story is in the file.
func (s *storyReader) path(section string) string { return join(s.at, section) }

func parseSeed(n *yaml.Node) (uint64, bool) {
	v, err := strconv.ParseUint(n.Value, 10, 64)
	return v, err == nil
}

func (s *storyReader) readConfig(line int, inline *yaml.Node, file string) {
	opts := config.Options{ProviderOptional: true}
	var err error
	switch {
	case (inline == nil) == (file == ""):
		s.failf(line, s.path("config"), "a scenario needs config or config_file, and not both")
		return
	case inline != nil:
		line = inline.Line
		addressPeers(inline)
		s.story.Config, err = config.ParseNode(s.file, inline, opts)
	default:
		var data []byte
		path := s.beside(file)
		if data, err = readFile(path); err == nil {
			s.story.Config, err = config.ParseWith(path, data, opts)
		}
	}
	if err != nil {
		s.addConfigError(line, s.path("config"), err)
		return
	}
	s.addPools(s.story.Config)
}

// addPools gives each pool that is new a cloud without a fault.
func (s *storyReader) addPools(c *config.Config) {
	for _, p := range c.Pools {
		if _, known := s.story.Clouds[p.Name]; known {
			continue
		}
		s.pools = append(s.pools, p.Name)
		cfg := fake.Defaults()
		cfg.Max = min(p.Policy.Max, fake.MaxInstances)
		s.story.Clouds[p.Name] = cfg
	}
}

// addConfigError keeps the lines that config found.
func (s *storyReader) addConfigError(line int, path string, err error) {
	var e *config.Error
	if !errors.As(err, &e) {
		s.failf(line, path, "%s", err)
		return
	}
	for _, p := range e.Problems {
		if p.File == s.file {
			p.Path = join(path, p.Path)
		}
		s.problems = append(s.problems, p)
	}
}

// readMode takes over what the pools say, where the story says nothing of who hands the
// jobs out.
func (s *storyReader) readMode(line int, given bool) {
	if s.story.Config == nil || len(s.story.Config.Pools) == 0 {
		return
	}
	modes := make(map[Mode]bool)
	for _, p := range s.story.Config.Pools {
		modes[Mode(p.Mode)] = true
	}
	switch said := len(modes) > 1 || !modes[Orchestrate]; {
	case len(modes) > 1:
		s.failf(line, "config", "pools of several modes: in a story one hands out all jobs")
	case !given:
		s.story.Mode = Mode(s.story.Config.Pools[0].Mode)
	case said && !modes[s.story.Mode]:
		s.failf(line, "mode", "%s, and the pools say otherwise", s.story.Mode)
	}
}

func (s *storyReader) readTick(line int, given bool) {
	if !given && s.story.Config != nil {
		s.story.Tick = s.story.Config.Tick
	}
	if given && s.story.Tick == 0 {
		s.failf(line, "tick", "must be above 0s")
	}
}

func (s *storyReader) readClouds(n *yaml.Node) {
	if n == nil || s.pools == nil {
		return
	}
	fields := make(map[string]field)
	for _, name := range s.pools {
		fields[name] = func(n *yaml.Node, path string) {
			cfg := s.story.Clouds[name]
			s.cloud(n, path, &cfg)
			s.story.Clouds[name] = cfg
		}
	}
	s.mapping(n, s.path("cloud"), fields)
}

func (s *storyReader) readJobs(n *yaml.Node, trace string) {
	if n != nil {
		s.list(n, s.path("jobs"), s.job(s.book))
	}
	if trace != "" {
		s.readTrace(trace)
	}
	s.story.Jobs = s.book.jobs
	reported := 0
	for _, j := range s.story.Jobs {
		if j.At > s.story.Duration && reported != j.Line {
			s.within(j.Line, s.path("jobs"), j.At, s.story.Duration)
			reported = j.Line // once for a burst
		}
	}
}

// beside is path, relative to the scenario.
func (s *storyReader) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.dir, path)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	defer func() { _ = f.Close() }() // read only: nothing can be lost
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("scenario: %w", err)
	case len(data) > MaxFileBytes:
		return nil, fmt.Errorf("scenario: %s has more than %d bytes", path, MaxFileBytes)
	}
	return data, nil
}
