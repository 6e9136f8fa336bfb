package admission_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/admission"
)

var update = flag.Bool("update", false, "write the stories' outcomes anew: read the difference before you keep it")

// Each story is lines "SECONDS WORD ARGUMENTS" and, indented after each, what came of it.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.story")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			got := tell(t, string(text))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
			}
			require.Equal(t, string(text), got)
		})
	}
}

func tell(t *testing.T, text string) string {
	t.Helper()
	e := admission.NewEngine(t0, three(t))
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out = append(out, line)
		if line == "" || line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		seconds, err := strconv.ParseFloat(words[0], 64)
		require.NoError(t, err)
		for _, s := range step(t, e, at(seconds), words[1:]) {
			out = append(out, "  "+s)
		}
	}
	return strings.Join(out, "\n") + "\n"
}

// step does one line, and then what is due.
func step(t *testing.T, e *admission.Engine, now time.Time, words []string) (out []string) {
	t.Helper()
	var decided []admission.Decision
	number := func(i int) uint64 {
		n, err := strconv.ParseUint(words[i], 10, 64)
		require.NoError(t, err)
		return n
	}
	switch words[0] {
	case "connect": // ID CONTROLLER
		_, err := e.Connect(now, admission.InstanceID(number(1)), words[2], "i"+words[1], 0)
		require.NoError(t, err)
	case "disconnect": // ID
		decided = e.Disconnect(now, admission.InstanceID(number(1)))
	case "take": // JOB...
		for _, id := range words[1:] {
			decided = append(decided, e.Take(now, item(id, 1))...)
		}
	case "allow", "deny": // ID BATCH JOB...
		var list []admission.Verdict
		for _, id := range words[3:] {
			list = append(list, admission.Verdict{Subject: id, Allow: words[0] == "allow", Reason: "no"})
		}
		var err error
		if decided, _, err = e.Answer(now, admission.InstanceID(number(1)), number(2), list); err != nil {
			out = append(out, err.Error())
		}
	case "wait":
	default:
		t.Fatalf("unknown word %s", words[0])
	}
	late, silent := e.Expire(now)
	for _, d := range slices.Concat(decided, late) {
		out = append(out, fmt.Sprintf("job %s: %s %s", d.Subject, [...]string{1: "approved by", 2: "rejected:", 3: "timed out:", 4: "handed on, approved by", 5: "called off:"}[d.Outcome],
			map[bool]string{true: strings.Join(d.Approved, ", "), false: d.Reason}[d.Outcome == admission.Approved || d.Outcome == admission.HandedOn]))
	}
	for _, id := range silent {
		out = append(out, fmt.Sprintf("instance %d is silent", id))
	}
	for _, b := range e.Plan(now) {
		out = append(out, "ask "+show([]admission.Batch{b})[0])
	}
	for i := range out {
		out[i] = strings.TrimRight(out[i], " ")
	}
	return out
}
