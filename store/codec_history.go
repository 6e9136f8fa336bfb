package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
)

// historyMark begins a history; scripts/queue.lua has its form.
const historyMark = "#"

// transitionsOf are the transitions in a state, the last of which brought the job to
// where it is.
func transitionsOf(st *state, r *spillway.JobRecord) ([]spillway.JobTransition, error) {
	list, err := parseHistory(st.history, st.submitted)
	if err != nil {
		return nil, err
	}
	last := &list[len(list)-1]
	if st.history == "" && r.State != spillway.Pending {
		// From before there were histories: its next entry will have this number.
		list = append(list, *last)
		last = &list[len(list)-1]
		last.Sequence, last.State, last.Attempt, last.Pool, last.Machine = 2, r.State, r.Attempt, r.Pool, r.Machine
		for _, at := range []time.Time{r.ClaimedAt, r.StartedAt, r.FinishedAt} {
			if !at.IsZero() {
				last.At = at
			}
		}
	}
	if r.State.Terminal() && last.Reason == "" {
		last.Reason = string(r.Result.Reason)
	}
	return list, nil
}

// parseHistory reads a history. An empty one is that of a job that has only been
// submitted.
func parseHistory(text string, submitted time.Time) ([]spillway.JobTransition, error) {
	current := spillway.JobTransition{Sequence: 1, State: spillway.Pending, At: submitted}
	dropped, entries, _ := strings.Cut(strings.TrimPrefix(text, historyMark), ";")
	list := make([]spillway.JobTransition, 0, 2+strings.Count(entries, ";"))
	if dropped == "" {
		list = append(list, current)
	} else {
		n, err := strconv.ParseInt(dropped, 10, 64)
		if err != nil || n < 0 || entries == "" {
			return nil, fmt.Errorf("%w: a history with %.20q entries dropped", errContent, dropped)
		}
		current.Sequence += n
	}
	for entry := range strings.SplitSeq(entries, ";") {
		if entry == "" {
			break
		}
		if err := follow(&current, entry); err != nil {
			return nil, err
		}
		if list = append(list, current); len(list) > spillway.MaxTransitions {
			return nil, fmt.Errorf("%w: a history of more than %d entries", errContent, spillway.MaxTransitions)
		}
	}
	return list, nil
}

// follow makes t the transition after it.
func follow(t *spillway.JobTransition, entry string) error {
	state, ok := stateLetters[entry[:1]]
	if !ok {
		return fmt.Errorf("%w: state %.8q in a history", errContent, entry[:1])
	}
	t.Sequence, t.State, t.Reason = t.Sequence+1, state, ""
	switch state {
	case spillway.Pending, spillway.Routing, spillway.Admitted:
		t.Pool, t.Machine = "", ""
	case spillway.Assigned:
		t.Machine = ""
	default: // it is where it was
	}
	if entry[:1] == quarantined {
		t.Reason = string(spillway.RunnerSystemFailure)
	}
	var fields [5]string // when, attempt, pool, machine, reason
	n := 0
	for field := range strings.SplitSeq(entry[1:], ",") {
		if n == len(fields) {
			return fmt.Errorf("%w: an entry of a history with more than %d fields", errContent, n)
		}
		fields[n] = field
		n++
	}
	return takeFields(t, &fields)
}

// takeFields reads what an entry says: what is empty is as before.
func takeFields(t *spillway.JobTransition, fields *[5]string) error {
	ms, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return fmt.Errorf("%w: a time in a history", errContent)
	}
	t.At = time.UnixMilli(submissionBase.UnixMilli() + ms).UTC()
	if fields[1] != "" {
		if t.Attempt, err = strconv.Atoi(fields[1]); err != nil || t.Attempt < 0 {
			return fmt.Errorf("%w: an attempt in a history", errContent)
		}
	}
	machine := string(t.Machine)
	for i, to := range []*string{&t.Pool, &machine, &t.Reason} {
		if word := fields[2+i]; word != "" {
			if *to, err = fromWord(word); err != nil {
				return err
			}
		}
	}
	t.Machine = spillway.MachineID(machine)
	return nil
}

// reasonWord is why a job goes back to the queue, as a word of its history.
func reasonWord(reason string) string {
	if reason == "" {
		return ""
	}
	return toWord(strings.ToValidUTF8(reason[:min(len(reason), spillway.MaxTransitionReasonBytes)], ""))
}
