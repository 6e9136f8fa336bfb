package session_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spillway-ci/spillway"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// pushing is a caller's side of a push stream.
type pushing struct {
	t   testing.TB
	rpc jobsv1.JobService_PushClient
}

func (p *plane) pushing() *pushing {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p.t.Cleanup(cancel)
	rpc, err := p.jobs.Push(ctx)
	require.NoError(p.t, err)
	return &pushing{p.t, rpc}
}

// push sends jobs of which everything is to be reported, and waits until they are
// accepted.
func (p *pushing) push(jobs ...*typesv1.Job) {
	p.t.Helper()
	for _, j := range jobs {
		require.NoError(p.t, p.rpc.Send(&jobsv1.PushRequest{Job: j, Report: true}))
	}
	for _, j := range jobs {
		ack := p.next()
		require.Equal(p.t, j.GetId(), ack.GetJobId())
		require.Equal(p.t, jobsv1.PushStatus_PUSH_STATUS_ACCEPTED, ack.GetStatus())
		require.Nil(p.t, ack.GetReport())
	}
}

func (p *pushing) resume(id string, after int64) {
	p.t.Helper()
	require.NoError(p.t, p.rpc.Send(&jobsv1.PushRequest{Resume: []*jobsv1.JobPosition{{JobId: id, AfterSequence: after}}}))
}

func (p *pushing) next() *jobsv1.PushResponse {
	p.t.Helper()
	m, err := p.rpc.Recv()
	require.NoError(p.t, err)
	return m
}

// reports waits until a job is in a state, and returns the transitions that were told.
func (p *pushing) reports(id string, until typesv1.JobState) (all []*typesv1.JobTransition) {
	p.t.Helper()
	for len(all) == 0 || all[len(all)-1].GetState() != until {
		m := p.next()
		require.Equal(p.t, id, m.GetJobId())
		require.False(p.t, m.GetReport().GetGap())
		require.NotEmpty(p.t, m.GetReport().GetTransitions())
		all = append(all, m.GetReport().GetTransitions()...)
	}
	return all
}

func statesOf(list []*typesv1.JobTransition) (states []typesv1.JobState) {
	for _, t := range list {
		states = append(states, t.GetState())
	}
	return states
}

// inOrder wants numbers without a gap, from one on.
func inOrder(t testing.TB, from int64, list []*typesv1.JobTransition) {
	t.Helper()
	for i, tr := range list {
		require.Equal(t, from+int64(i), tr.GetSequence())
	}
}

func TestA16_TransitionsAreReportedOnThePushStream(t *testing.T) {
	p := startPlane(t, planeConfig{})
	s := p.pushing()
	s.push(job("j1"))
	r := p.linux("m1", 1)
	r.accept("j1", r.assigned().GetAttempt())
	told := s.reports("j1", running)
	require.Equal(t, []typesv1.JobState{pending, assigned, running}, statesOf(told))
	inOrder(t, 1, told)
	require.Equal(t, "m1", told[2].GetMachineId())
	require.Equal(t, "linux", told[2].GetPool())
	require.EqualValues(t, 1, told[2].GetAttempt())
	require.NotNil(t, told[2].GetAt())

	require.NoError(t, s.rpc.CloseSend())
	r.result("j1", 1, &typesv1.JobResult{State: failed, ExitCode: 7, Output: []byte("a lot")})
	m := s.next()
	inOrder(t, 4, m.GetReport().GetTransitions())
	require.Equal(t, failed, m.GetReport().GetResult().GetState())
	require.EqualValues(t, 7, m.GetReport().GetResult().GetExitCode())
	require.Equal(t, "script_failure", m.GetReport().GetTransitions()[0].GetReason())
	require.Empty(t, m.GetReport().GetResult().GetOutput(), "Get has it")
	_, err := s.rpc.Recv()
	require.ErrorIs(t, err, io.EOF, "nothing can follow")
}

// A replica is as good as another one: the number is all that a caller has to know.
func TestA16_ReportsGoOnWhereTheyBrokeOff(t *testing.T) {
	p := startPlane(t, planeConfig{})
	q := startPlane(t, planeConfig{store: p.store, options: session.Options{Replica: "replica-2"}})
	s := p.pushing()
	s.push(job("j1"))
	r := p.linux("m1", 1)
	a := r.assigned()
	inOrder(t, 1, s.reports("j1", assigned))
	p.conn.Close() // the caller's connection
	r.accept("j1", a.GetAttempt())

	again := q.pushing()
	again.resume("j1", 2)
	inOrder(t, 3, again.reports("j1", running))
	r.finish("j1", a.GetAttempt())
	inOrder(t, 4, again.reports("j1", completed))

	last := q.pushing()
	last.resume("j1", 4) // its end is known
	require.NoError(t, last.rpc.CloseSend())
	_, err := last.rpc.Recv()
	require.ErrorIs(t, err, io.EOF, "nothing is new")

	all := q.pushing()
	all.resume("j1", 0)
	require.Equal(t, []typesv1.JobState{pending, assigned, running, completed}, statesOf(all.reports("j1", completed)))
}

func TestA16_WhatIsNoLongerKnownIsSaid(t *testing.T) {
	p := startPlane(t, planeConfig{})
	s := p.pushing()
	s.push(job("j1"))
	told := s.reports("j1", pending)
	want := []router.ClaimWant{{Class: spillway.Requirement{Tags: []string{"linux"}}.Class(), Pool: "linux", N: 1}}
	for range 20 { // some replica claims it and gives it back
		claimed, err := p.store.Claim(t.Context(), "another", want, time.Minute)
		require.NoError(t, err)
		told = append(told, s.reports("j1", assigned)...)
		_, err = p.store.Release(t.Context(), []store.Release{{Ref: claimed[0].Ref, Detail: "no place was left"}})
		require.NoError(t, err)
		told = append(told, s.reports("j1", pending)...)
		require.Equal(t, "no place was left", last(told).GetReason())
	}
	inOrder(t, 1, told) // who was there the whole time has missed nothing
	require.EqualValues(t, 41, last(told).GetSequence())

	gap := p.pushing()
	gap.resume("j1", 4)
	m := gap.next()
	require.True(t, m.GetReport().GetGap())
	require.Len(t, m.GetReport().GetTransitions(), 1)
	require.EqualValues(t, 41, m.GetReport().GetTransitions()[0].GetSequence())
	require.Equal(t, pending, m.GetReport().GetTransitions()[0].GetState())

	kept := p.pushing()
	kept.resume("j1", 41-spillway.MaxTransitions)
	inOrder(t, 42-spillway.MaxTransitions, kept.reports("j1", pending))

	ahead := p.pushing() // of a job that has begun anew, or of somebody who makes numbers up
	ahead.resume("j1", 900)
	require.True(t, ahead.next().GetReport().GetGap())

	unknown := p.pushing()
	unknown.resume("nobody", 3)
	require.NoError(t, unknown.rpc.CloseSend())
	require.True(t, unknown.next().GetReport().GetUnknown())
	_, err := unknown.rpc.Recv()
	require.ErrorIs(t, err, io.EOF)
}

func last[T any](list []T) T { return list[len(list)-1] }

func TestA16_PositionsThatBreakARule(t *testing.T) {
	p := startPlane(t, planeConfig{})
	for name, list := range map[string][]*jobsv1.JobPosition{
		"no id":            {{}},
		"blank":            {{JobId: "a b"}},
		"before the first": {{JobId: "a", AfterSequence: -1}},
		"too many":         make([]*jobsv1.JobPosition, session.MaxIDsPerCall+1),
	} {
		t.Run(name, func(t *testing.T) {
			s := p.pushing()
			require.NoError(t, s.rpc.Send(&jobsv1.PushRequest{Resume: list}))
			_, err := s.rpc.Recv()
			requireCode(t, codes.InvalidArgument, err)
		})
	}
	watch, err := p.jobs.Watch(t.Context(), &jobsv1.WatchRequest{JobIds: []string{"a"}, After: []*jobsv1.JobPosition{{JobId: "b"}}})
	require.NoError(t, err)
	_, err = watch.Recv()
	requireCode(t, codes.InvalidArgument, err)
}

func TestA16_AJobThatIsNotTakenIsNotReported(t *testing.T) {
	p := startPlane(t, planeConfig{})
	p.mustPush(job("j1"))
	s := p.pushing()
	other := job("j1")
	other.Script = "false"
	require.NoError(t, s.rpc.Send(&jobsv1.PushRequest{Job: other, Report: true}))
	require.NoError(t, s.rpc.Send(&jobsv1.PushRequest{Job: &typesv1.Job{Id: "bad"}, Report: true}))
	require.NoError(t, s.rpc.Send(&jobsv1.PushRequest{Job: job("j1")})) // a duplicate, without report
	require.NoError(t, s.rpc.Send(&jobsv1.PushRequest{}))
	require.NoError(t, s.rpc.CloseSend())
	for _, status := range []jobsv1.PushStatus{
		jobsv1.PushStatus_PUSH_STATUS_CONFLICT, jobsv1.PushStatus_PUSH_STATUS_INVALID,
		jobsv1.PushStatus_PUSH_STATUS_DUPLICATE, jobsv1.PushStatus_PUSH_STATUS_INVALID,
	} {
		require.Equal(t, status, s.next().GetStatus())
	}
	_, err := s.rpc.Recv()
	require.ErrorIs(t, err, io.EOF)

	again := p.pushing()
	require.NoError(t, again.rpc.Send(&jobsv1.PushRequest{Job: job("j1"), Report: true}))
	require.Equal(t, jobsv1.PushStatus_PUSH_STATUS_DUPLICATE, again.next().GetStatus())
	inOrder(t, 1, again.reports("j1", pending))
}

func TestA16_AWatchGoesOnWhereItBrokeOff(t *testing.T) {
	p := startPlane(t, planeConfig{})
	p.mustPush(job("j1"))
	r := p.linux("m1", 1)
	r.accept("j1", r.assigned().GetAttempt())
	p.waitFor("j1", running)
	watch, err := p.jobs.Watch(t.Context(), &jobsv1.WatchRequest{
		JobIds: []string{"j1"}, UntilTerminal: true, After: []*jobsv1.JobPosition{{JobId: "j1", AfterSequence: 1}},
	})
	require.NoError(t, err)
	m, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, []typesv1.JobState{assigned, running}, statesOf(m.GetRecord().GetTransitions()))
	inOrder(t, 2, m.GetRecord().GetTransitions())
	require.False(t, m.GetGap())
	r.finish("j1", 1)
	m, err = watch.Recv()
	require.NoError(t, err)
	inOrder(t, 4, m.GetRecord().GetTransitions())
	_, err = watch.Recv()
	require.ErrorIs(t, err, io.EOF)

	for after, gap := range map[int64]bool{4: false, 77: true} {
		watch, err = p.jobs.Watch(t.Context(), &jobsv1.WatchRequest{
			JobIds: []string{"j1"}, UntilTerminal: true, After: []*jobsv1.JobPosition{{JobId: "j1", AfterSequence: after}},
		})
		require.NoError(t, err)
		if gap {
			m, err = watch.Recv()
			require.NoError(t, err)
			require.True(t, m.GetGap())
			require.Equal(t, completed, m.GetRecord().GetState())
		}
		_, err = watch.Recv()
		require.ErrorIs(t, err, io.EOF)
	}
}

// silent is a store whose events say only that there were some.
type silent struct{ *store.Store }

func (s silent) Subscribe(ctx context.Context) (<-chan store.EventBatch, error) {
	batches, err := s.Store.Subscribe(ctx)
	if err != nil {
		return nil, err
	}
	out := make(chan store.EventBatch)
	go func() {
		defer close(out)
		for range batches {
			select {
			case out <- store.EventBatch{Lost: true}:
			case <-ctx.Done():
			}
		}
	}()
	return out, nil
}

func TestA16_WhatTheEventsDoNotSayTheStoreDoes(t *testing.T) {
	p := startPlane(t, planeConfig{wrap: func(s *store.Store) fullStore { return silent{s} }})
	s := p.pushing()
	s.push(job("j1"))
	r := p.linux("m1", 1)
	a := r.assigned()
	r.accept("j1", a.GetAttempt())
	told := s.reports("j1", running)
	r.finish("j1", a.GetAttempt())
	told = append(told, s.reports("j1", completed)...)
	inOrder(t, 1, told)
	require.Len(t, told, 4)
}
