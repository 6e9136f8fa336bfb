package local

import (
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Limits of a command.
const (
	MaxCommandParts = 100   // the program and its arguments
	MaxPartBytes    = 4_096 // of each
)

// The placeholders of a command. {{ and }} stand for the braces themselves.
const (
	instanceMark = "instance"     // the instance's id
	portMark     = "metrics_port" // a port of 127.0.0.1 that is the instance's alone; it makes the instance's address
	workDirMark  = "work_dir"     // the instance's own directory, in which it is started
	groupMark    = "group"        // the name of its group
)

var marks = []string{instanceMark, portMark, workDirMark, groupMark}

// The signals that may have a command end. Both go to its process alone, as an init
// would send them, and not to what it has started.
var stopSignals = map[string]unix.Signal{
	"":        unix.SIGTERM,
	"SIGTERM": unix.SIGTERM,
	"SIGQUIT": unix.SIGQUIT, // a gitlab-runner finishes its jobs
}

// fill puts values for the placeholders of one part of a command.
func fill(part string, values map[string]string) (string, error) {
	var out strings.Builder
	for part != "" {
		i := strings.IndexAny(part, "{}")
		if i < 0 {
			out.WriteString(part)
			break
		}
		out.WriteString(part[:i])
		rest := part[i:]
		if strings.HasPrefix(rest, "{{") || strings.HasPrefix(rest, "}}") {
			out.WriteByte(rest[0])
			part = rest[2:]
			continue
		}
		name, after, closed := strings.Cut(rest[1:], "}")
		if rest[0] == '}' || !closed {
			return "", fmt.Errorf("a brace that belongs to no placeholder; for a brace itself write it twice")
		}
		value, known := values[name]
		if !known {
			return "", fmt.Errorf("there is no placeholder {%.40s}; there are {%s}; for a brace itself write it twice", name, strings.Join(marks, "}, {"))
		}
		out.WriteString(value)
		part = after
	}
	return out.String(), nil
}

// asksForPort reports whether a command that was checked has that placeholder.
func asksForPort(command []string) bool {
	values := map[string]string{}
	for _, m := range marks {
		values[m] = ""
	}
	without := filled(command, values)
	values[portMark] = "x"
	for i, part := range filled(command, values) {
		if part != without[i] {
			return true
		}
	}
	return false
}

// filled is fill for all parts of a command that was checked.
func filled(command []string, values map[string]string) []string {
	parts := make([]string, len(command))
	for i, part := range command {
		parts[i], _ = fill(part, values)
	}
	return parts
}

// checkCommand finds what is wrong with a group's command, and with what goes with it.
func (g *groupConfig) checkCommand(problems *pluginsdk.Problems) {
	if g.Command == nil {
		if g.StopSignal != "" {
			problems.Addf("stop_signal", "only for a command: an agent is told by SIGTERM")
		}
		if g.Sidecar {
			problems.Addf("sidecar", "only beside a command")
		}
		return
	}
	if g.Capacity != nil {
		problems.Addf("capacity", "a command takes as many jobs as it likes; the agent's setting is not for it")
	}
	if g.TokenFile != "" && !g.Sidecar {
		problems.Addf("token_file", "a command has no agent to use it")
	}
	if _, known := stopSignals[g.StopSignal]; !known {
		problems.Addf("stop_signal", "%.20q, use SIGTERM or SIGQUIT", g.StopSignal)
	}
	if g.Sidecar && g.StopSignal != "" {
		problems.Addf("stop_signal", "the sidecar stops the command, by SIGQUIT")
	}
	if n := len(g.Command); n < 1 || n > MaxCommandParts {
		problems.Addf("command", "%d parts, use 1 to %d", n, MaxCommandParts)
		return
	}
	if g.checkParts(problems) && g.Sidecar && !asksForPort(g.Command) {
		problems.Addf("command", "a sidecar reads its metrics: have it serve them at 127.0.0.1:{%s}", portMark)
	}
}

func (g *groupConfig) checkParts(problems *pluginsdk.Problems) (ok bool) {
	ok = true
	values := map[string]string{}
	for _, m := range marks {
		values[m] = ""
	}
	for i, part := range g.Command {
		at := fmt.Sprintf("command[%d]", i)
		_, err := fill(part, values)
		switch {
		case len(part) > MaxPartBytes || strings.ContainsRune(part, 0):
			problems.Addf(at, "use at most %d bytes, none of them 0", MaxPartBytes)
		case err != nil:
			problems.Addf(at, "%s", err)
		default:
			continue
		}
		ok = false
	}
	if ok && strings.ContainsAny(g.Command[0], "{}") {
		problems.Addf("command[0]", "name the program itself")
	} else if _, err := exec.LookPath(g.Command[0]); ok && err != nil {
		problems.Addf("command[0]", "%s", err)
	}
	return ok
}
