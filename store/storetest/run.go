package storetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

const (
	// within is how long a test waits for what must happen.
	within = 80 * time.Second
	// every is how often it looks.
	every = 5 * time.Millisecond
	// claimTTL is longer than any test.
	claimTTL = time.Minute
)

// Opener opens an empty store, and closes it when the test ends. Connections are
// the opener's; the other options are the test's.
type Opener func(t *testing.T, o store.Options) *store.Store

// Run holds what open opens to the contract of package store.
func Run(t *testing.T, open Opener) {
	t.Helper()
	for _, group := range []struct {
		name  string
		tests []contract
	}{
		{"Push", pushContract},
		{"Claim", claimContract},
		{"Apply", applyContract},
		{"Extend", extendContract},
		{"Release", releaseContract},
		{"Reap", reapContract},
		{"History", historyContract},
		{"Quarantine", quarantineContract},
		{"Cancel", cancelContract},
		{"Admission", admissionContract},
		{"Read", readContract},
		{"Events", eventContract},
		{"Machines", machineContract},
		{"Notices", noticeContract},
		{"Routed", routedContract},
		{"Boards", boardContract},
		{"Facts", factContract},
		{"Settings", settingContract},
		{"Work", workContract},
		{"Seats", seatsContract},
		{"Experience", experienceContract},
		{"Leases", leaseContract},
		{"Memory", memoryContract},
		{"Views", viewContract},
		{"States", stateContract},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.tests {
				t.Run(c.name, func(t *testing.T) { c.check(t, open(t, c.options)) })
			}
		})
	}
}

// quickly repeats f until it took less than limit once: what it looks at is no more after
// that time, and a busy machine may be slower.
func quickly(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); {
		began := time.Now()
		if f(); time.Since(began) < limit {
			return
		}
	}
	require.FailNow(t, "this machine is too slow", "%s are never enough", limit)
}

// contract is one promise.
type contract struct {
	name    string
	options store.Options
	check   func(t *testing.T, s *store.Store)
}

// job returns a valid job of the class of its tags.
func job(id string, tags ...string) spillway.Job {
	return spillway.Job{
		ID: spillway.JobID(id), Name: "job " + id, Requirement: spillway.Requirement{Tags: tags}, Script: "echo " + id,
		Env: map[string]string{"TOKEN": "secret-" + id},
	}
}

func numbered(n int, tags ...string) []spillway.Job {
	jobs := make([]spillway.Job, n)
	for i := range jobs {
		jobs[i] = job(strconv.Itoa(i+1), tags...)
	}
	return jobs
}

func classOf(tags ...string) spillway.JobClass { return spillway.Requirement{Tags: tags}.Class() }

// push pushes jobs that must all be accepted.
func push(t *testing.T, s *store.Store, jobs ...spillway.Job) {
	t.Helper()
	outcomes, err := s.Push(t.Context(), jobs)
	require.NoError(t, err)
	for i, o := range outcomes {
		require.Equal(t, store.Accepted, o, "job %s", jobs[i].ID)
	}
}

// claim claims up to n jobs of one class.
func claim(t *testing.T, s *store.Store, n int, tags ...string) []router.Claimed {
	t.Helper()
	return claimFor(t, s, n, claimTTL, tags...)
}

func claimFor(t *testing.T, s *store.Store, n int, ttl time.Duration, tags ...string) []router.Claimed {
	t.Helper()
	claimed, err := s.Claim(t.Context(), "replica-1", []router.ClaimWant{{Class: classOf(tags...), Pool: "blue", N: n}}, ttl)
	require.NoError(t, err)
	return claimed
}

// apply applies one transition.
func apply(t *testing.T, s *store.Store, tr store.Transition) error {
	t.Helper()
	errs, err := s.Apply(t.Context(), []store.Transition{tr})
	require.NoError(t, err)
	require.Len(t, errs, 1)
	return errs[0]
}

func completed(ref router.JobRef) store.Transition {
	return store.Transition{
		Ref: ref, To: spillway.Completed, Pool: "blue", Machine: "m-1",
		Result: spillway.JobResult{State: spillway.Completed, Output: []byte("done\n")},
	}
}

func running(ref router.JobRef) store.Transition {
	return store.Transition{Ref: ref, To: spillway.Running, Pool: "blue", Machine: "m 1"}
}

func release(t *testing.T, s *store.Store, r store.Release) error {
	t.Helper()
	errs, err := s.Release(t.Context(), []store.Release{r})
	require.NoError(t, err)
	require.Len(t, errs, 1)
	return errs[0]
}

func get(t *testing.T, s *store.Store, id spillway.JobID) spillway.JobRecord {
	t.Helper()
	r, err := s.Get(t.Context(), id)
	require.NoError(t, err)
	return r
}

// counts returns pending and claimed jobs over all classes.
func counts(t *testing.T, s *store.Store) (pending, claimed int) {
	t.Helper()
	all, err := s.Counts(t.Context())
	require.NoError(t, err)
	for _, c := range all {
		pending += c.Pending
		claimed += c.Claimed
	}
	return pending, claimed
}

func idsOf(claimed []router.Claimed) []spillway.JobID {
	ids := make([]spillway.JobID, len(claimed))
	for i, c := range claimed {
		ids[i] = c.Ref.ID
	}
	return ids
}
