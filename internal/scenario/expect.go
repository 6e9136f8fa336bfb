package scenario

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway"
)

// Op compares what was seen with what is expected.
type Op string

// The operators.
const (
	Equal        Op = "=="
	NotEqual     Op = "!="
	AtMost       Op = "<="
	AtLeast      Op = ">="
	LessThan     Op = "<"
	GreaterThan  Op = ">"
	noSuchMoment    = time.Duration(-1)
)

// Expectation is one line of expect: PATH OP VALUE.
type Expectation struct {
	Text  string
	Line  int
	Path  []string      // "pool", "linux", "desired"
	At    time.Duration // of a series; negative = not asked for
	Op    Op
	Value float64 // a time is in seconds
	time  bool    // the value was written as a time
}

// Facts answers paths. A path that was checked by this package and has no answer
// is one that never happened: 0.
type Facts interface {
	// Fact returns the value of path, at a moment if at is not negative.
	Fact(path []string, at time.Duration) float64
}

// Outcome is an expectation that was looked at.
type Outcome struct {
	Expectation Expectation
	OK          bool
	Seen        float64
}

// String says what was expected and what was seen.
func (o Outcome) String() string {
	verdict := "ok"
	if !o.OK {
		verdict = "FALSE"
	}
	return fmt.Sprintf("%s: %s (seen: %s)", verdict, o.Expectation.Text, o.Expectation.show(o.Seen))
}

// Check looks at one expectation.
func (e Expectation) Check(f Facts) Outcome {
	seen := f.Fact(e.Path, e.At)
	return Outcome{Expectation: e, OK: e.Op.holds(seen, e.Value), Seen: seen}
}

func (e Expectation) show(v float64) string {
	if e.time {
		return time.Duration(v * float64(time.Second)).String()
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// tolerance is what two equal times may differ by after they were seconds [s].
const tolerance = 1e-6

func (o Op) holds(seen, want float64) bool {
	same := seen-want < tolerance && want-seen < tolerance
	switch o {
	case Equal:
		return same
	case NotEqual:
		return !same
	case AtMost:
		return same || seen < want
	case AtLeast:
		return same || seen > want
	case LessThan:
		return !same && seen < want
	default:
		return !same && seen > want
	}
}

var expectLine = regexp.MustCompile(`^\s*([A-Za-z0-9_.-]+?)(?:\.at\(([^()]*)\))?\s*(==|!=|<=|>=|<|>)\s*(\S+)\s*$`)

// expectation reads one line.
func (s *storyReader) expectation(n *yaml.Node, path string) {
	if n.Kind != yaml.ScalarNode {
		s.failf(n.Line, path, "must be one line such as: busy_kills == 0")
		return
	}
	e := Expectation{Text: strings.TrimSpace(n.Value), Line: n.Line, At: noSuchMoment}
	m := expectLine.FindStringSubmatch(n.Value)
	if m == nil {
		s.failf(n.Line, path, "%.80q: use PATH OP VALUE, such as jobs.wait.p95 <= 15m", n.Value)
		return
	}
	e.Path, e.Op = strings.Split(m[1], "."), Op(m[3])
	if m[2] != "" {
		at, err := parseDuration(m[2])
		if err != nil || at < 0 {
			s.failf(n.Line, path, "at(%s): not a time", m[2])
			return
		}
		e.At = at
	}
	var err error
	if e.Value, err = strconv.ParseFloat(m[4], 64); err != nil {
		d, err := time.ParseDuration(m[4])
		if err != nil {
			s.failf(n.Line, path, "%s is neither a number nor a time", m[4])
			return
		}
		e.Value, e.time = d.Seconds(), true
	}
	if why := s.unknownPath(e); why != "" {
		s.failf(n.Line, path, "%s: %s", m[1], why)
		return
	}
	s.story.Expect = append(s.story.Expect, e)
}

// Names that may stand in a path.
var (
	jobFacts  = []string{"submitted", "completed", "failed", "rejected", "canceled", "pending", "running", "unmatched"}
	jobSeries = []string{"completed", "pending", "running"}
	poolFacts = []string{"launches", "removals", "scale_calls", "max_live", "instance_seconds", "cost"}
	quantiles = []string{"p50", "p95", "max"}
	callOps   = []string{"set_desired", "remove", "withdraw", "complete_hook", "report_unhealthy"}
	series    = []string{"desired", "in_service"}
	// Invariants are those of the design that a simulation can see.
	Invariants = []string{"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I10", "I11", "I13", "I14", "I15"}

	controllerFacts = []string{"asked", "allowed", "refused"}
	handedFacts     = []string{"over", "ended", "back"}
	oneJobFacts     = []string{"wait", "starts", "reviews", "completed", "failed", "rejected", "canceled"}
)

// unknownPath says what is wrong with a path; empty = nothing.
func (s *storyReader) unknownPath(e Expectation) string {
	p, depth := e.Path, len(e.Path)
	isSeries := false
	switch {
	case depth == 1 && slices.Contains([]string{"busy_kills", "forced_kills", "calls", "decisions", "duration_s"}, p[0]):
	case p[0] == "jobs" && depth == 2 && slices.Contains(jobFacts, p[1]):
		isSeries = slices.Contains(jobSeries, p[1])
	case p[0] == "jobs" && depth == 3 && (p[1] == "wait" || p[1] == "wait_s") && slices.Contains(quantiles, p[2]):
	case p[0] == "calls" && depth == 2 && slices.Contains(callOps, p[1]):
	case p[0] == "unmatched" && depth == 2:
	case p[0] == "invariants" && depth == 2 && slices.Contains(Invariants, p[1]):
	case p[0] == "failures" && depth == 2:
	case p[0] == "controller" && depth == 3:
		return s.unknownName(p[1:], "controller", slices.Sorted(maps.Keys(s.story.Controllers)), controllerFacts, e.At)
	case p[0] == "handed" && depth == 3:
		return s.unknownName(p[1:], "peer", s.peers(), handedFacts, e.At)
	case p[0] == "job" && depth == 3:
		return s.unknownJob(p[1:], e.At)
	case p[0] == "cell" && depth > 2 && s.at == "":
		c := s.cells[p[1]]
		if c == nil {
			return "there is no cell " + p[1] + " beside this one; there are " + strings.Join(slices.Sorted(maps.Keys(s.cells)), ", ")
		}
		e.Path = p[2:]
		return c.unknownPath(e)
	case (p[0] == "pool" || p[0] == "pools") && depth > 2:
		why, ok := s.unknownPoolPath(p)
		if why != "" {
			return why
		}
		isSeries = ok
	default:
		return "unknown; there are busy_kills, forced_kills, calls[.OP], decisions, duration_s, jobs.{" +
			strings.Join(jobFacts, ",") + "}, jobs.wait.{p50,p95,max}, job.ID.…, pool.NAME.…, unmatched.REASON, failures.REASON, invariants.I1…, " +
			"controller.NAME.…, handed.CELL.…, cell.NAME.…"
	}
	if e.At >= 0 && !isSeries {
		return "at() goes with what changes over time: pool.NAME.{desired,in_service}, jobs.{completed,pending,running}"
	}
	return ""
}

func (s *storyReader) unknownPoolPath(p []string) (why string, isSeries bool) {
	if s.pools != nil && !slices.Contains(s.pools, p[1]) {
		return "there is no pool " + p[1] + "; there are " + strings.Join(s.pools, ", "), false
	}
	switch depth := len(p); {
	case depth == 3 && slices.Contains(poolFacts, p[2]):
		return "", false
	case depth == 3 && slices.Contains(series, p[2]):
		return "", true
	case depth == 4 && slices.Contains(series, p[2]) && slices.Contains([]string{"min", "max"}, p[3]):
		return "", false
	case depth == 4 && p[2] == "limited_by":
		return "", false
	case depth == 4 && p[2] == "calls" && slices.Contains(callOps, p[3]):
		return "", false
	default:
		return "a pool has " + strings.Join(poolFacts, ", ") + ", desired, in_service (.at(TIME), .min, .max), limited_by.RULE, calls.OP", false
	}
}

// unknownName says what is wrong with NAME.FACT.
func (s *storyReader) unknownName(p []string, what string, names, facts []string, at time.Duration) string {
	switch {
	case !slices.Contains(names, p[0]):
		return "there is no " + what + " " + p[0] + "; there are " + strings.Join(names, ", ")
	case !slices.Contains(facts, p[1]):
		return "a " + what + " has " + strings.Join(facts, ", ")
	case at >= 0:
		return "at() goes with what changes over time"
	default:
		return ""
	}
}

func (s *storyReader) unknownJob(p []string, at time.Duration) string {
	if _, known := s.book.at[spillway.JobID(p[0])]; !known {
		return "there is no job " + p[0]
	}
	return s.unknownName(p, "job", p[:1], oneJobFacts, at)
}
