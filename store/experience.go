package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

const (
	// MaxExperience bounds what is kept of what replicas have learned [entries]: as much as
	// two kinds of an engine's own memory.
	MaxExperience = 8_192
	// maxToldExperience bounds what one exchange tells [entries]: some 200 KB. Who has
	// missed more, after a start, gets the latest of it.
	maxToldExperience = 2_048
	// maxExperienceBytes bounds the name of an entry, and its content [bytes].
	maxExperienceBytes = 1 << 10
)

var experienceScript = mustScript("experience")

// experienceKeys are in the order of the script.
func (s *Store) experienceKeys() []string {
	return []string{s.key("x", "learned"), s.key("x", "order"), s.key("x", "clock")}
}

// ShareExperience adds what a replica has learned to what all of them have, in place of
// what was known of the same, and returns what others have learned since the exchange
// whose number is since (0: ever), and the number of this one. It keeps the latest
// MaxExperience entries, for a month after the last exchange.
//
// It may be repeated after ErrUnknown. What is of another version is left out.
func (s *Store) ShareExperience(ctx context.Context, since uint64, x router.Experience) (got router.Experience, number uint64, err error) {
	args := []any{strconv.FormatUint(since, 10), MaxExperience, maxToldExperience, memoryTTL.Milliseconds()}
	fields, err := encodeExperience(x)
	if err != nil {
		return got, since, fmt.Errorf("store: share experience: %w", err)
	}
	ctx, done := s.begin(ctx)
	defer done()
	list, err := s.run(ctx, []call{{experienceScript, s.experienceKeys(), append(args, fields...)}})[0].list()
	if err != nil || len(list)%2 != 1 {
		return got, since, failed("share experience", errors.Join(err, badLength(err)), writing)
	}
	for i := 1; i < len(list); i += 2 {
		decodeExperience(&got, asString(list[i]), asString(list[i+1]))
	}
	return got, uint64(asInt(list[0])), nil
}

// The names of entries: "d pool job" and how long [ms]; "w word" or "p project" and the
// machines as a JSON list.
func encodeExperience(x router.Experience) ([]any, error) {
	var fields []any
	add := func(name, content string) {
		if len(name) <= maxExperienceBytes && len(content) <= maxExperienceBytes { // no other fits a job or a machine
			fields = append(fields, name, content)
		}
	}
	for _, d := range x.Durations[:min(len(x.Durations), router.MaxExperience)] {
		add("d "+d.Pool+" "+d.Job, strconv.FormatInt(d.Mean.Milliseconds(), 10))
	}
	for _, w := range x.Warm[:min(len(x.Warm), router.MaxExperience)] {
		machines, err := json.Marshal(w.Machines)
		if err != nil {
			return nil, err
		}
		name := "p " + strconv.FormatInt(w.Project, 10)
		if w.Word != "" {
			name = "w " + w.Word
		}
		add(name, string(machines))
	}
	return fields, nil
}

// decodeExperience reads one entry as if anybody could have written it.
func decodeExperience(x *router.Experience, name, content string) {
	kind, of, _ := strings.Cut(name, " ")
	if len(name) > maxExperienceBytes || len(content) > maxExperienceBytes {
		return
	}
	switch kind {
	case "d":
		pool, job, ok := strings.Cut(of, " ")
		ms, err := strconv.ParseInt(content, 10, 64)
		if ok && err == nil && ms >= 0 && time.Duration(ms) <= spillway.MaxJobTimeout/time.Millisecond {
			x.Durations = append(x.Durations, router.LearnedDuration{Pool: pool, Job: job, Mean: time.Duration(ms) * time.Millisecond})
		}
	case "w", "p":
		w := router.LearnedWarm{Word: of}
		if kind == "p" {
			w.Word = ""
			n, err := strconv.ParseInt(of, 10, 64)
			if err != nil || n <= 0 {
				return
			}
			w.Project = n
		}
		if of != "" && json.Unmarshal([]byte(content), &w.Machines) == nil && len(w.Machines) > 0 {
			x.Warm = append(x.Warm, w)
		}
	}
}
