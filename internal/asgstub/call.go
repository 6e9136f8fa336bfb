package asgstub

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// MaxCalls bounds the calls that the log remembers, the newest [calls]; the counts
// go on.
const MaxCalls = 100_000

// Call is one call, as the log has it.
type Call struct {
	At        time.Time
	Service   string // autoscaling, ec2, sts, sqs or monitoring
	Operation string
	Group     string     // that it is about; empty for none or several
	Args      url.Values // of the Query APIs; nobody may change them
	Code      string     // of the error; empty = it worked
	Who       string     // the access key id that signed it
}

// Arg is an argument of the call.
func (c Call) Arg(name string) string { return c.Args.Get(name) }

// Writes reports whether the call changes something.
func (c Call) Writes() bool {
	for _, reads := range []string{"Describe", "Get", "Receive"} {
		if strings.HasPrefix(c.Operation, reads) {
			return false
		}
	}
	return true
}

type callLog struct {
	calls  []Call
	counts map[string]int
}

func (l *callLog) add(c Call) {
	l.counts[c.Operation]++
	if len(l.calls) >= MaxCalls {
		l.calls = slices.Delete(l.calls, 0, MaxCalls/2)
	}
	l.calls = append(l.calls, c)
}

// Calls returns the log, the oldest first.
func (c *Cloud) Calls() (out []Call) {
	c.locked(func() { out = slices.Clone(c.mu.calls.calls) })
	return out
}

// CountOf is how often an operation was called, whatever the answer.
func (c *Cloud) CountOf(op string) (n int) {
	c.locked(func() { n = c.mu.calls.counts[op] })
	return n
}

// Counts is how often each operation was called, whatever the answer.
func (c *Cloud) Counts() (out map[string]int) {
	c.locked(func() { out = maps.Clone(c.mu.calls.counts) })
	return out
}

// ResetCalls empties the log and the counts.
func (c *Cloud) ResetCalls() {
	c.locked(func() { c.mu.calls = callLog{counts: make(map[string]int)} })
}

func (c *Cloud) newCall(x *exchange) Call {
	call := Call{At: c.mu.now, Service: x.service, Operation: x.op, Who: x.who}
	if x.p == nil {
		return call
	}
	call.Args = x.p.values
	switch v := x.p.values; {
	case v.Get("AutoScalingGroupName") != "":
		call.Group = arnGroup(v.Get("AutoScalingGroupName"))
	case v.Get("AutoScalingGroupNames.member.1") != "" && !v.Has("AutoScalingGroupNames.member.2"):
		call.Group = v.Get("AutoScalingGroupNames.member.1")
	default:
		for _, key := range []string{"InstanceId", "InstanceIds.member.1", "InstanceId.1"} {
			if in := c.mu.instances[v.Get(key)]; in != nil {
				call.Group = in.g.name
			}
		}
	}
	return call
}

// arnGroup is a group's name where its ARN is taken as well.
func arnGroup(s string) string {
	if _, name, ok := strings.Cut(s, ":autoScalingGroupName/"); ok {
		return name
	}
	return s
}
