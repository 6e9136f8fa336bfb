package scenario

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-ci/spillway"
)

// jobBook is the jobs read so far.
type jobBook struct {
	jobs   []Job
	at     map[spillway.JobID]time.Duration
	bursts map[spillway.JobID][]spillway.JobID // name of a burst → its jobs
}

func newJobBook() *jobBook {
	return &jobBook{at: make(map[spillway.JobID]time.Duration), bursts: make(map[spillway.JobID][]spillway.JobID)}
}

// rawJob is one entry of jobs or one line of a trace.
type rawJob struct {
	at, duration time.Duration
	id           string
	count        int
	tags         []string
	protected    bool
	project      int
	groups       []int64
	priority     int
	retry        bool
	attempts     int
}

// job reads one entry of the list or one line of a trace.
func (r *reader) job(book *jobBook) field {
	return func(n *yaml.Node, path string) {
		j := rawJob{retry: true}
		before := len(r.problems)
		seen := r.mapping(n, path, map[string]field{
			"at":           r.duration(&j.at),
			"id":           r.text(&j.id),
			"count":        r.count(&j.count),
			"tags":         r.texts(&j.tags),
			"protected":    r.truth(&j.protected),
			"project":      r.count(&j.project),
			"groups":       r.numbers(&j.groups),
			"duration":     r.duration(&j.duration),
			"priority":     r.count(&j.priority),
			"retry":        r.truth(&j.retry),
			"max_attempts": r.count(&j.attempts),
		})
		for _, key := range []string{"at", "id", "duration"} {
			if !seen[key] && n.Kind == yaml.MappingNode {
				r.failf(n.Line, path, "a job needs %s", key)
			}
		}
		if seen["count"] && (j.count < 1 || j.count > MaxJobs) {
			r.failf(n.Line, join(path, "count"), "%d: use 1 to %d", j.count, MaxJobs)
		}
		if len(r.problems) == before {
			r.add(book, j, seen["count"], n.Line, path)
		}
	}
}

// add expands a burst into its jobs: id-1 … id-count.
func (r *reader) add(book *jobBook, j rawJob, burst bool, line int, path string) {
	ids := []spillway.JobID{spillway.JobID(j.id)}
	if burst {
		ids = ids[:0]
		for i := range j.count {
			ids = append(ids, spillway.JobID(fmt.Sprintf("%s-%d", j.id, i+1)))
		}
		book.bursts[spillway.JobID(j.id)] = ids
	}
	if len(book.jobs)+len(ids) > MaxJobs {
		r.failf(line, path, "more than %d jobs", MaxJobs)
		return
	}
	for i, id := range ids {
		job := j.build(id)
		if err := job.Job.Validate(); err != nil && i == 0 {
			r.problemsOf(line, path, err)
		}
		if _, taken := book.at[id]; taken {
			r.failf(line, join(path, "id"), "there is a job %s already", id)
			return
		}
		job.Line = line
		book.at[id] = j.at
		book.jobs = append(book.jobs, job)
	}
}

func (j rawJob) build(id spillway.JobID) Job {
	return Job{
		At:       j.at,
		Duration: j.duration,
		Job: spillway.Job{
			ID: id,
			Requirement: spillway.Requirement{
				Tags: j.tags, Protected: j.protected, Project: int64(j.project), Groups: j.groups,
			},
			Priority:    j.priority,
			Script:      "simulated",
			Timeout:     spillway.MaxJobTimeout, // it runs for its duration
			NoRetry:     !j.retry,
			MaxAttempts: j.attempts,
		},
	}
}

// resolveJobs turns names of jobs and of bursts into jobs that exist by at.
func (r *reader) resolveJobs(book *jobBook, names []string, at time.Duration, line int, path string) (ids []spillway.JobID) {
	for _, name := range names {
		id := spillway.JobID(name)
		found := book.bursts[id]
		if _, ok := book.at[id]; ok {
			found = []spillway.JobID{id}
		}
		if len(found) == 0 {
			r.failf(line, path, "there is no job %.60q", name)
			continue
		}
		if submitted := book.at[found[0]]; submitted > at {
			r.failf(line, path, "job %s is submitted at %s, which is after %s", name, submitted, at)
		}
		ids = append(ids, found...)
	}
	return ids
}
