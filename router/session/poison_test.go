package session_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spillway-ci/spillway"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

func (p *plane) retry(id string) (*typesv1.JobRecord, error) {
	resp, err := p.jobs.Retry(context.Background(), &jobsv1.RetryRequest{JobId: id, Reason: "the driver was fixed"})
	return resp.GetRecord(), err
}

func (p *plane) inQuarantine() (ids []string) {
	p.t.Helper()
	page, err := p.jobs.List(context.Background(), &jobsv1.ListRequest{Quarantined: true})
	require.NoError(p.t, err)
	for _, r := range page.GetRecords() {
		require.True(p.t, r.GetQuarantined())
		ids = append(ids, r.GetJob().GetId())
	}
	return ids
}

// loseMachines has a job take down so many machines, each of which began it.
func (p *plane) loseMachines(id string, from, n int) {
	p.t.Helper()
	for k := from; k < from+n; k++ {
		name := fmt.Sprintf("m%d", k)
		m := p.linux(name, 1)
		a := m.assigned()
		require.Equal(p.t, id, a.GetJob().GetId())
		require.EqualValues(p.t, k, a.GetAttempt())
		m.accept(id, a.GetAttempt())
		p.waitFor(id, running)
		m.end()
		p.dispatcher.MachinesEnded([]spillway.MachineID{spillway.MachineID(name)})
		require.Eventually(p.t, func() bool {
			p.dispatcher.MachinesEnded([]spillway.MachineID{spillway.MachineID(name)})
			return p.record(id).GetState() != running
		}, patience, tick)
	}
}

func TestA19_APoisonJobIsQuarantined(t *testing.T) {
	p := startPlane(t, planeConfig{})
	s := p.pushing()
	s.push(job("j1"))
	p.loseMachines("j1", 1, spillway.DefaultMaxAttempts)
	record := p.waitFor("j1", failed)
	require.True(t, record.GetQuarantined())
	require.EqualValues(t, 3, record.GetLost())
	require.Equal(t, string(spillway.RunnerSystemFailure), record.GetResult().GetReason())
	require.Equal(t, []string{"j1"}, p.inQuarantine())
	require.Eventually(t, func() bool { return p.seen.times("quarantined") == 1 }, patience, tick)
	told := s.reports("j1", failed)
	inOrder(t, 1, told)
	require.Contains(t, told[3].GetReason(), "machine")

	healthy := p.linux("m4", 1)
	require.False(t, healthy.assignedBeforeAnswer(), "it has cost machines enough")
	record, err := p.retry("j1")
	require.NoError(t, err)
	require.Equal(t, pending, record.GetState())
	require.Zero(t, record.GetLost())
	require.Equal(t, 1, p.seen.times("retried"))
	require.Empty(t, p.inQuarantine())
	a := healthy.assigned()
	require.EqualValues(t, 4, a.GetAttempt())
	require.Equal(t, "true", a.GetJob().GetScript())
	healthy.finish("j1", a.GetAttempt())
	told = append(told, s.reports("j1", completed)...)
	inOrder(t, 1, told) // whoever pushed it hears of that, too
	require.Equal(t, "the driver was fixed", told[10].GetReason())
	require.Equal(t, 1, p.seen.times("quarantined"))
}

func TestA19_OnlyAJobInQuarantineIsTriedAgain(t *testing.T) {
	p := startPlane(t, planeConfig{})
	p.mustPush(job("j1"))
	unchanged(p, "j1", func() {
		_, err := p.retry("j1")
		requireCode(t, codes.FailedPrecondition, err)
		require.ErrorContains(t, err, "not in quarantine but pending")
	})
	r := p.linux("m1", 1)
	r.finish("j1", r.assigned().GetAttempt())
	p.waitFor("j1", completed)
	unchanged(p, "j1", func() {
		_, err := p.retry("j1")
		requireCode(t, codes.FailedPrecondition, err)
	})
	_, err := p.retry("nobody")
	requireCode(t, codes.NotFound, err)
	_, err = p.retry("two words")
	requireCode(t, codes.InvalidArgument, err)
	_, err = p.jobs.List(context.Background(), &jobsv1.ListRequest{Quarantined: true, States: []typesv1.JobState{failed}})
	requireCode(t, codes.InvalidArgument, err)
	require.Zero(t, p.seen.times("retried"))
}

// Three heartbeats of silence, and a machine is suspect: it keeps what it has for a
// while, and is offered nothing.
func TestA19_ASilentMachineIsSuspectAfterThreeHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, 3*spillway.DefaultHeartbeatEvery, spillway.SilentAfter)
		const beat = 50 * time.Millisecond
		p := startPlane(t, planeConfig{bubble: true, options: session.Options{HeartbeatEvery: beat, SilentAfter: 3 * beat}})
		mute := p.linux("mute", 1)
		time.Sleep(4 * beat) // of the bubble's clock
		p.mustPush(job("j1"))
		alive := p.linux("alive", 1)
		require.Equal(t, "j1", alive.assigned().GetJob().GetId())
		requireCode(t, codes.Unavailable, mute.ended())
		for m := range mute.messages {
			require.Nil(t, m.GetAssign())
		}
	})
}

// A replica that dies leaves claims behind. They expire, and the job has its next
// attempt elsewhere; what comes of the old one is refused.
func TestA19_AnExpiredClaimIsTheNextAttempt(t *testing.T) {
	x := &toxic{}
	dead := startPlane(t, planeConfig{
		wrap:    func(s *store.Store) fullStore { x.Store = s; return x },
		options: session.Options{ClaimTTL: 300 * time.Millisecond},
	})
	m := dead.linux("m1", 1)
	dead.mustPush(job("j1"))
	a := m.assigned()
	m.accept("j1", a.GetAttempt())
	dead.waitFor("j1", running)
	x.away.Store(true) // it can't say a word more
	dead.stop()

	next := startPlane(t, planeConfig{store: dead.store, options: session.Options{Replica: "replica-2", ReapEvery: 50 * time.Millisecond}})
	other := next.linux("m2", 1)
	b := other.assigned()
	require.Equal(t, a.GetAttempt()+1, b.GetAttempt())
	require.EqualValues(t, 1, next.record("j1").GetLost())
	late := next.connect(linuxToken, &runnerv1.Register{MachineId: "m1", Capacity: 1, Running: []*runnerv1.RunningJob{{JobId: "j1", Attempt: a.GetAttempt()}}})
	require.Len(t, late.registered.GetSuperseded(), 1)
	late.finish("j1", a.GetAttempt())
	require.True(t, late.acked().GetStale())
	other.finish("j1", b.GetAttempt())
	require.False(t, other.acked().GetStale())
	record := next.waitFor("j1", completed)
	require.Equal(t, []typesv1.JobState{pending, assigned, running, pending, assigned, completed}, statesOf(record.GetTransitions()))
	require.Equal(t, "its claim expired", record.GetTransitions()[3].GetReason())
}
