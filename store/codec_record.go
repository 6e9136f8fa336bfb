package store

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/spillway-ci/spillway"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// The score of a pending job is priority × spanMicros + its submission in µs since
// submissionBase. Both are in scripts/queue.lua too. Ten priorities stay below 2^53
// until 2053.
const spanMicros = 900_000_000_000_000

var submissionBase = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// noWord stands for an empty word in a state: escaping never makes a lone percent.
const noWord = "%"

// stateLetters are the states as the store knows them.
var stateLetters = map[string]spillway.JobState{
	"q": spillway.Pending, "o": spillway.Routing, "d": spillway.Admitted, "a": spillway.Assigned, "r": spillway.Running, "c": spillway.Completed,
	"f": spillway.Failed, "x": spillway.Rejected, "k": spillway.Canceled, quarantined: spillway.Failed,
}

// quarantined is the letter of a job that has failed and is kept in quarantine.
const quarantined = "p"

var letterOf = func() map[spillway.JobState]string {
	m := make(map[spillway.JobState]string, len(stateLetters))
	for l, s := range stateLetters {
		if l != quarantined {
			m[s] = l
		}
	}
	return m
}()

// toWord escapes s so that it has no blank and is not empty.
func toWord(s string) string {
	if s == "" {
		return noWord
	}
	return url.QueryEscape(s)
}

func fromWord(w string) (string, error) {
	if w == noWord {
		return "", nil
	}
	s, err := url.QueryUnescape(w)
	if err != nil {
		return "", fmt.Errorf("%w: a word of a state", errContent)
	}
	return strings.Clone(s), nil // who keeps it must not keep a whole answer of the server
}

// state is the mutable part of a job; scripts/queue.lua writes it.
type state struct {
	letter                       string
	attempt, lost                int
	claimed, started, finished   time.Time
	pool, machine, owner, result string
	submitted                    time.Time
	history                      string
}

func parseState(text string) (state, error) {
	head, history, result := cutState(text)
	words := strings.Split(head, " ")
	if len(words) != 11 || len(text) > maxStoredBytes {
		return state{}, fmt.Errorf("%w: a state of %d words and %d bytes", errContent, len(words), len(text))
	}
	var numbers [7]int64
	for i, at := range [...]int{1, 2, 3, 4, 7, 8, 9} {
		n, err := strconv.ParseInt(words[at], 10, 64)
		if err != nil || n < 0 {
			return state{}, fmt.Errorf("%w: number %d of a state", errContent, at)
		}
		numbers[i] = n
	}
	st := state{
		letter: words[0], result: result, attempt: int(numbers[0]), lost: int(numbers[4]),
		claimed: millis(numbers[1]), started: millis(numbers[2]), finished: millis(numbers[3]),
		submitted: submittedAt(numbers[5]), history: history,
	}
	for _, w := range []struct {
		to   *string
		word string
	}{{&st.pool, words[5]}, {&st.machine, words[6]}, {&st.owner, words[10]}} {
		s, err := fromWord(w.word)
		if err != nil {
			return state{}, err
		}
		*w.to = s
	}
	return st, nil
}

// cutState splits a state into its parts. One from before there were histories has
// none; a result never begins like one.
func cutState(text string) (head, history, result string) {
	head, rest, _ := strings.Cut(text, "\n")
	if !strings.HasPrefix(rest, historyMark) {
		return head, "", rest
	}
	history, result, _ = strings.Cut(rest, "\n")
	return head, history, result
}

// submittedAt is when a job with this score was submitted.
func submittedAt(score int64) time.Time {
	return submissionBase.Add(time.Duration(score%spanMicros) * time.Microsecond)
}

// millis reads a time of the server; 0 is no time.
func millis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// decodeRecord joins a state with the public part of its job.
func decodeRecord(stateText, public string) (spillway.JobRecord, error) {
	st, err := parseState(stateText)
	if err != nil {
		return spillway.JobRecord{}, err
	}
	to, ok := stateLetters[st.letter]
	if !ok {
		return spillway.JobRecord{}, fmt.Errorf("%w: state %.8q", errContent, st.letter)
	}
	job, err := decodePublic(public)
	if err != nil {
		return spillway.JobRecord{}, err
	}
	job.SubmittedAt = st.submitted
	r := spillway.JobRecord{
		Job: job, State: to, Attempt: st.attempt, Lost: st.lost, Pool: st.pool, Machine: spillway.MachineID(st.machine),
		ClaimedAt: st.claimed, StartedAt: st.started, FinishedAt: st.finished,
	}
	if to.Terminal() {
		if r.Result, err = decodeResult(st.result); err != nil {
			return spillway.JobRecord{}, fmt.Errorf("job %s: %w", job.ID, err)
		}
		r.Result.State = to
	}
	r.Quarantined = st.letter == quarantined
	if r.Transitions, err = transitionsOf(&st, &r); err != nil {
		return spillway.JobRecord{}, fmt.Errorf("job %s: %w", job.ID, err)
	}
	return r, nil
}

// decodeRecords reads triples of id, state and job.
func decodeRecords(list []any) ([]spillway.JobRecord, error) {
	if len(list)%3 != 0 {
		return nil, fmt.Errorf("%w: %d values are no records", errReply, len(list))
	}
	records := make([]spillway.JobRecord, 0, len(list)/3)
	for i := 0; i < len(list); i += 3 {
		r, err := decodeRecord(asString(list[i+1]), asString(list[i+2]))
		if err != nil {
			return records, err
		}
		records = append(records, r)
	}
	return records, nil
}

// encodeResult keeps at most spillway.MaxOutputBytes of output, its end. Words that are
// not UTF-8 are made so: one such result would hold up all that are written with it.
func encodeResult(r spillway.JobResult) (string, error) {
	out := r.Output
	if over := len(out) - spillway.MaxOutputBytes; over > 0 {
		out = out[over:]
	}
	b, err := proto.Marshal(&typesv1.JobResult{
		Reason: strings.ToValidUTF8(string(r.Reason), "\uFFFD"), Detail: strings.ToValidUTF8(r.Detail, "\uFFFD"), ExitCode: int32(r.ExitCode), Output: out,
	})
	if err != nil {
		return "", fmt.Errorf("store: encoding a result: %w", err)
	}
	return string(b), nil
}

func decodeResult(b string) (spillway.JobResult, error) {
	var m typesv1.JobResult
	if err := proto.Unmarshal([]byte(b), &m); err != nil {
		return spillway.JobResult{}, fmt.Errorf("%w: a result: %w", errContent, err)
	}
	return spillway.JobResult{
		Reason: spillway.FailureReason(m.GetReason()), Detail: m.GetDetail(), ExitCode: int(m.GetExitCode()), Output: m.GetOutput(),
	}, nil
}
