package scenario

import (
	"bytes"

	"go.yaml.in/yaml/v3"
)

// readTrace reads one job a line, in the form of jobs. JSON is YAML, so both are
// read alike.
func (s *storyReader) readTrace(file string) {
	path := s.beside(file)
	data, err := readFile(path)
	if err != nil {
		s.failf(0, "trace", "%s", err)
		return
	}
	r := &reader{file: path}
	read := r.job(s.book)
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		var doc yaml.Node
		if err := yaml.Unmarshal(text, &doc); err != nil || len(doc.Content) == 0 {
			r.failf(line, "", "not a JSON object")
			continue
		}
		atLine(doc.Content[0], line)
		read(doc.Content[0], "")
	}
	s.problems = append(s.problems, r.problems...)
}

// atLine moves nodes that were read from one line to where that line is.
func atLine(n *yaml.Node, line int) {
	n.Line = line
	for _, child := range n.Content {
		atLine(child, line)
	}
}
