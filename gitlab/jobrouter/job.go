package jobrouter

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
)

// job is a job that GitLab has handed out to us and no machine has acknowledged. It is
// owned by whoever places it; between that it lies in its line.
type job struct {
	id        spillway.JobID
	payload   gitlab.Payload
	body      []byte // as GitLab sent it
	requestID string
	token     string // hash of the runner token
	pools     []spillway.Pool
	wish      wish

	foundAt  time.Time
	ackedAt  time.Time // when GitLab last knew that we have it
	renewAt  time.Time // when it is told again
	offerAt  time.Time // not offered before
	renewing bool      // it is being told
	booked   bool      // it may be in a machine's book: to be struck before it is kept or left
	doubtful bool      // a machine may have it: GitLab is asked before it is offered again
	admitted string    // the pool for which admission has let it through
}

func newJob(answer gitlab.JobAnswer, p gitlab.Payload, token string, pools []spillway.Pool, w wish, now time.Time) *job {
	return &job{
		id: spillway.JobID(strconv.FormatInt(p.ID, 10)), payload: p, body: answer.Body, requestID: answer.RequestID,
		token: token, pools: pools, wish: w, foundAt: now, ackedAt: now, renewAt: now.Add(renewEvery),
	}
}

// String and LogValue name the job and show nothing of it.
func (j *job) String() string { return "job " + string(j.id) }

// GoString is String.
func (j *job) GoString() string { return j.String() }

// LogValue is String.
func (j *job) LogValue() slog.Value { return slog.StringValue(j.String()) }

// acknowledged notes that GitLab knew at this time that the job is ours.
func (j *job) acknowledged(at time.Time) { j.ackedAt, j.renewAt = at, at.Add(renewEvery) }

// forAnybody reports whether the job has been in our hands for so long that its own
// token's machines, which ask again soon if they are there, need not have it.
func (j *job) forAnybody(now time.Time) bool {
	return j.wish.twoPhase && now.Sub(j.foundAt) >= backWithin
}

// until is when the job is surely over.
func (j *job) until(now time.Time) time.Time {
	limit := j.payload.RunnerInfo.Timeout
	if limit <= 0 || limit > spillway.MaxJobTimeout {
		limit = spillway.MaxJobTimeout // a machine is kept too long rather than removed under a job
	}
	return now.Add(limit + jobMargin)
}

// upkeep is what a job that is kept needs now.
type upkeep int

const (
	rest  upkeep = iota
	renew        // tell GitLab that we still have it
	leave        // give it up
)

// upkeepAt decides it.
func (j *job) upkeepAt(now time.Time, keepFor time.Duration) (do upkeep, why string) {
	switch {
	case !j.wish.twoPhase:
		// GitLab takes it as running already: there is nothing to renew, and it must not
		// hang until its time limit.
		if now.Sub(j.foundAt) >= legacyFor {
			return leave, "The machine that this job was meant for went away, and no other one asked in time."
		}
		return rest, ""
	case now.Sub(j.ackedAt) >= lastChance:
		return leave, "GitLab could not be told in time that it is kept"
	case now.Sub(j.foundAt) >= keepFor:
		return leave, "no machine took it for as long as jobs are kept"
	case !j.renewing && now.Compare(j.renewAt) >= 0:
		return renew, ""
	default:
		return rest, ""
	}
}

// HeldJob is what may be known of a job in our hands: nothing of what it runs.
type HeldJob struct {
	ID        spillway.JobID
	Token     string          // hash of the runner token that GitLab gave it to
	Pools     []spillway.Pool // that the token serves, the first by priority first
	Project   int64
	Protected bool
	Queue     int64     // jobs that waited for this runner when it was handed out
	Since     time.Time // when it began to wait in GitLab
	At        time.Time // when it was last known to be pending
}

func (j *job) held() HeldJob {
	return HeldJob{
		ID: j.id, Token: j.token, Pools: j.pools, Project: j.payload.JobInfo.ProjectID, Protected: j.payload.GitInfo.Protected,
		Queue: j.payload.JobInfo.QueueSize, Since: j.foundAt.Add(-j.payload.JobInfo.TimeInQueue), At: j.ackedAt,
	}
}

// Requirement is what the job needs, as far as it can be known: a payload doesn't say
// which tags the job has, but GitLab gave it to this runner, so it needs no more than
// what the runner's pools offer. Every pool of the runner takes it, and as few others
// as possible.
func (h HeldJob) Requirement() spillway.Requirement {
	r := spillway.Requirement{Project: h.Project, Protected: h.Protected}
	if len(h.Pools) == 0 {
		return r
	}
	c := h.Pools[0].Capability
	r.Origin, r.Groups = c.Origin, c.Groups
	r.Tags = c.Tags[:min(len(c.Tags), spillway.MaxJobTags-1)]
	r.Protected = r.Protected || c.Protected
	return r
}
