package jobfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
)

// Limits of one file.
const (
	// MaxJobs is what one file may hold [jobs]: larger batches belong into several
	// pushes, so that a mistake in one does not hold up the rest.
	MaxJobs = 100_000
	// MaxLineBytes holds the largest job that is allowed, with every byte of its
	// script and environment escaped [bytes].
	MaxLineBytes = 2 << 20
	// MaxMistakes is how many mistakes one error lists.
	MaxMistakes = 20
)

// ErrInvalid is wrapped by every error about the content of a file.
var ErrInvalid = errors.New("invalid job file")

// line is one job as the file has it.
type line struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Tags        []string          `json:"tags"`
	Protected   bool              `json:"protected"`
	Project     int64             `json:"project"`
	Groups      []int64           `json:"groups"`
	Resources   resources         `json:"resources"`
	Priority    int               `json:"priority"`
	Script      string            `json:"script"`
	Env         map[string]string `json:"env"`
	Timeout     duration          `json:"timeout"`
	NoRetry     bool              `json:"no_retry"`
	MaxAttempts int               `json:"max_attempts"`
	Image       string            `json:"image"`

	Affinity     string `json:"affinity"`
	AntiAffinity string `json:"anti_affinity"`
}

type resources struct {
	MilliCPU  int64    `json:"milli_cpu"`
	MemoryMiB int64    `json:"memory_mib"`
	Features  []string `json:"features"`
}

// duration is "30s", never a bare number of something.
type duration time.Duration

func (d *duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return errors.New(`timeout: write a number with its unit in quotes, such as "30s" or "1h30m"`)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf(`timeout: %.40q is not a duration; write a number with its unit, such as "30s" or "1h30m"`, s)
	}
	*d = duration(v)
	return nil
}

// Parse reads jobs from r; name stands for the file in errors. Blank lines are
// skipped. The error lists every mistake as "name:line: …" and matches
// ErrInvalid, unless r itself failed.
func Parse(name string, r io.Reader) ([]spillway.Job, error) {
	f := file{name: name, first: map[spillway.JobID]int{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, MaxLineBytes)
	for lines.Scan() {
		f.line++
		if text := bytes.TrimSpace(lines.Bytes()); len(text) > 0 {
			f.add(text)
		}
		if len(f.jobs) > MaxJobs {
			f.fail("more than %d jobs; split the file", MaxJobs)
			break
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		f.line++
		f.fail("the line has more than %d bytes", MaxLineBytes)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(f.jobs) == 0 && f.mistakes == 0:
		f.fail("there is no job in it; write one JSON object a line")
	}
	return f.result()
}

// file is what has been read so far.
type file struct {
	name     string
	line     int
	jobs     []spillway.Job
	first    map[spillway.JobID]int // id → its line
	mistakes int
	errs     []error // at most MaxMistakes
}

func (f *file) fail(format string, args ...any) {
	if f.mistakes++; f.mistakes > MaxMistakes {
		return
	}
	f.errs = append(f.errs, fmt.Errorf("%s:%d: %s", f.name, max(1, f.line), fmt.Sprintf(format, args...)))
}

func (f *file) add(text []byte) {
	if wrong := checkFields(text); wrong != "" {
		f.fail("%s", wrong)
		return
	}
	var l line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // of nested objects; the job's own were checked
	if err := d.Decode(&l); err != nil {
		f.fail("%s", sentence(err))
		return
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		f.fail("more than one JSON value; write one job a line")
		return
	}
	job := l.job()
	if err := job.Validate(); err != nil {
		for _, text := range strings.Split(err.Error(), "\n") {
			f.fail("%s", strings.TrimPrefix(text, spillway.ErrInvalid.Error()+": "))
		}
		return
	}
	if at, again := f.first[job.ID]; again {
		f.fail("id %s is the id of the job in line %d already; each job needs its own", job.ID, at)
		return
	}
	f.first[job.ID] = f.line
	f.jobs = append(f.jobs, job)
}

// fields are those of a job.
var fields = []string{
	"id", "name", "tags", "protected", "project", "groups", "resources", "priority", "script", "env", "timeout", "no_retry", "max_attempts", "image",
	"affinity", "anti_affinity",
}

// checkFields refuses what encoding/json would let pass: fields in other cases,
// and fields that are there twice. It returns what is wrong, empty if nothing is;
// what is no JSON at all it leaves to be found in decoding.
func checkFields(text []byte) string {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, _ := d.Token(); t != json.Delim('{') {
		return ""
	}
	seen := map[string]bool{}
	for d.More() {
		t, _ := d.Token()
		field, ok := t.(string)
		switch {
		case !ok:
			return ""
		case !slices.Contains(fields, field):
			return fmt.Sprintf("unknown field %.40q; a job has %s", field, strings.Join(fields, ", "))
		case seen[field]:
			return fmt.Sprintf("field %s is there twice; keep one of them", field)
		}
		seen[field] = true
		if d.Decode(new(json.RawMessage)) != nil {
			return ""
		}
	}
	return ""
}

// sentence puts encoding/json's errors into the words of the person who wrote
// the file.
func sentence(err error) string {
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType) && wrongType.Field == "":
		return fmt.Sprintf("must be a JSON object, not %s", wrongType.Value)
	case errors.As(err, &wrongType):
		return fmt.Sprintf("%s: must be %s, not %s", wrongType.Field, typeName(wrongType.Type.Kind()), wrongType.Value)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "not JSON: the line ends within the job; write each job on one line"
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if strings.HasPrefix(text, "timeout: ") || strings.HasPrefix(text, "unknown field ") {
		return text
	}
	return "not JSON: " + text
}

func typeName(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	default:
		return "a whole number"
	}
}

func (f *file) result() ([]spillway.Job, error) {
	if f.mistakes == 0 {
		return f.jobs, nil
	}
	if more := f.mistakes - len(f.errs); more > 0 {
		f.errs = append(f.errs, fmt.Errorf("and %d more", more))
	}
	return nil, &invalidError{errors.Join(f.errs...)}
}

// invalidError marks the list of mistakes without adding words to it.
type invalidError struct{ error }

func (e *invalidError) Is(target error) bool { return target == ErrInvalid }

func (l *line) job() spillway.Job {
	return spillway.Job{
		ID:   spillway.JobID(l.ID),
		Name: l.Name,
		Requirement: spillway.Requirement{
			Tags:      l.Tags,
			Protected: l.Protected,
			Project:   l.Project,
			Groups:    l.Groups,
			Resources: spillway.Resources{
				MilliCPU: l.Resources.MilliCPU, MemoryMiB: l.Resources.MemoryMiB, Features: l.Resources.Features,
			},
		},
		Priority:    l.Priority,
		Script:      l.Script,
		Env:         l.Env,
		Timeout:     time.Duration(l.Timeout),
		NoRetry:     l.NoRetry,
		MaxAttempts: l.MaxAttempts,
		Image:       l.Image,

		Affinity:     l.Affinity,
		AntiAffinity: l.AntiAffinity,
	}
}
