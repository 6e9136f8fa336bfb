package session_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spillway-ci/spillway"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
	"github.com/spillway-ci/spillway/store"
)

// TestALyingRunnerGetsNothing plays a machine that knows everything about a job
// but was not given it.
func TestALyingRunnerGetsNothing(t *testing.T) {
	p := startPlane(t, planeConfig{})
	honest := p.linux("m1", 1)
	p.mustPush(job("j1"))
	a := honest.assigned()
	honest.accept("j1", a.GetAttempt())
	p.waitFor("j1", running)

	liar := p.connect(linuxToken, &runnerv1.Register{MachineId: "m2", Capacity: 1, Running: []*runnerv1.RunningJob{{JobId: "j1", Attempt: a.GetAttempt()}}})
	require.Len(t, liar.registered.GetSuperseded(), 1)
	liar.finish("j1", a.GetAttempt())
	require.True(t, liar.acked().GetStale())
	liar.finish("j1", a.GetAttempt()+1)
	require.True(t, liar.acked().GetStale())
	liar.refuse("j1", a.GetAttempt(), runnerv1.RefusalCode_REFUSAL_CODE_INVALID)
	liar.accept("j1", a.GetAttempt())
	require.Equal(t, "j1", expect(liar, (*runnerv1.RouterMessage).GetCancelJob).GetJobId())
	liar.heartbeat(0, false, &runnerv1.RunningJob{JobId: "j1", Attempt: a.GetAttempt()})
	require.Equal(t, "j1", expect(liar, (*runnerv1.RouterMessage).GetCancelJob).GetJobId())

	record := p.record("j1")
	require.Equal(t, running, record.GetState())
	require.Equal(t, "m1", record.GetMachineId())
	honest.finish("j1", a.GetAttempt())
	require.False(t, honest.acked().GetStale())
	require.Equal(t, "m1", p.waitFor("j1", completed).GetMachineId())
}

func TestMessagesThatBreakARuleEndTheStream(t *testing.T) {
	p := startPlane(t, planeConfig{})
	long := strings.Repeat("x", spillway.MaxJobIDBytes+1)
	result := func(s *runnerv1.JobStatus) *runnerv1.RunnerMessage {
		return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: s}}
	}
	beat := func(h *runnerv1.Heartbeat) *runnerv1.RunnerMessage {
		return &runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: h}}
	}
	for name, m := range map[string]*runnerv1.RunnerMessage{
		"empty":            {},
		"negative busy":    beat(&runnerv1.Heartbeat{Busy: -1}),
		"huge busy":        beat(&runnerv1.Heartbeat{Busy: spillway.MaxCapacityPerInst + 1}),
		"too many running": beat(&runnerv1.Heartbeat{Running: inventedJobs(spillway.MaxCapacityPerInst + 1)}),
		"long job id":      result(&runnerv1.JobStatus{JobId: long, Attempt: 1}),
		"blank in job id":  result(&runnerv1.JobStatus{JobId: "a b", Attempt: 1}),
		"no job id":        result(&runnerv1.JobStatus{Attempt: 1}),
		"attempt zero":     result(&runnerv1.JobStatus{JobId: "j"}),
		"not an end":       result(&runnerv1.JobStatus{JobId: "j", Attempt: 1, Result: &typesv1.JobResult{State: running}}),
		"rejecting":        result(&runnerv1.JobStatus{JobId: "j", Attempt: 1, Result: &typesv1.JobResult{State: rejected}}),
		"invented reason":  result(&runnerv1.JobStatus{JobId: "j", Attempt: 1, Result: &typesv1.JobResult{State: failed, Reason: "unmatched"}}),
		"unknown notice":   beat(&runnerv1.Heartbeat{Interruption: &runnerv1.Interruption{Kind: 99}}),
		"empty notice":     beat(&runnerv1.Heartbeat{Interruption: &runnerv1.Interruption{}}),
		"no time":          beat(&runnerv1.Heartbeat{Interruption: notice(spot, &timestamppb.Timestamp{Nanos: -1})}),
		"long complaint":   beat(&runnerv1.Heartbeat{Unhealthy: strings.Repeat("x", session.MaxUnhealthyBytes+1)}),
		"second register":  {Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{MachineId: "m1", Capacity: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := p.linux("m1", 1)
			r.say(m)
			requireCode(t, codes.InvalidArgument, r.ended())
		})
	}
	require.Zero(t, p.seen.times("panicked"))
}

func TestRegistersThatBreakARule(t *testing.T) {
	p := startPlane(t, planeConfig{})
	labels := map[string]string{}
	for i := range session.MaxLabels + 1 {
		labels[fmt.Sprint(i)] = "v"
	}
	id := strings.Repeat("m", session.MaxIDBytes)
	for name, reg := range map[string]*runnerv1.Register{
		"no machine id":     {Capacity: 1},
		"long machine id":   {MachineId: id + "m", Capacity: 1},
		"control character": {MachineId: "m\n1", Capacity: 1},
		"long instance id":  {MachineId: "m", InstanceId: id + "i", Capacity: 1},
		"long version":      {MachineId: "m", Version: strings.Repeat("1", session.MaxVersionBytes+1), Capacity: 1},
		"no capacity":       {MachineId: "m"},
		"negative capacity": {MachineId: "m", Capacity: -3},
		"too many labels":   {MachineId: "m", Capacity: 1, Labels: labels},
		"long label":        {MachineId: "m", Capacity: 1, Labels: map[string]string{"l": strings.Repeat("v", session.MaxLabelValueBytes+1)}},
		"too many running":  {MachineId: "m", Capacity: 1, Running: inventedJobs(spillway.MaxCapacityPerInst + 1)},
	} {
		t.Run(name, func(t *testing.T) {
			r := p.open(linuxToken)
			r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: reg}})
			requireCode(t, codes.InvalidArgument, r.ended())
		})
	}
	p.connect(linuxToken, &runnerv1.Register{MachineId: id, InstanceId: id, Capacity: 1}) // at the edge
}

func TestAMessageThatIsTooLargeEndsTheStream(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.linux("m1", 1)
	r.result("j", 1, &typesv1.JobResult{State: completed, Output: make([]byte, session.MaxMessageBytes)})
	requireCode(t, codes.ResourceExhausted, r.ended())
}

func TestOutputIsCutToItsTail(t *testing.T) {
	p := startPlane(t, planeConfig{})
	r := p.linux("m1", 1)
	p.mustPush(job("j1"))
	a := r.assigned()
	r.result("j1", a.GetAttempt(), &typesv1.JobResult{
		State: failed, ExitCode: 3, Detail: strings.Repeat("é", session.MaxDetailBytes),
		Output: append(make([]byte, spillway.MaxOutputBytes), "the end"...),
	})
	require.False(t, r.acked().GetStale())
	result := p.waitFor("j1", failed).GetResult()
	require.Len(t, result.GetOutput(), spillway.MaxOutputBytes)
	require.True(t, strings.HasSuffix(string(result.GetOutput()), "the end"))
	require.Len(t, result.GetDetail(), session.MaxDetailBytes)
	require.Equal(t, string(spillway.ScriptFailure), result.GetReason())
	require.EqualValues(t, 3, result.GetExitCode())
}

func TestAFloodEndsTheStreamAndABusyMachineIsNone(t *testing.T) {
	p := startPlane(t, planeConfig{options: session.Options{Pools: []spillway.Pool{linuxPool(1), macPool()}}})
	busy := p.linux("busy", 1)
	for i := range 300 { // 900 messages in a moment, each paid for
		id := fmt.Sprintf("j%d", i)
		p.mustPush(job(id))
		a := busy.assigned()
		busy.accept(id, a.GetAttempt())
		busy.result(id, a.GetAttempt(), nil)
		busy.finish(id, a.GetAttempt())
		require.False(t, busy.acked().GetStale())
	}
	flood := p.linux("flood", 1)
	var sent atomic.Int64
	go func() {
		for flood.rpc.Send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: &runnerv1.Heartbeat{}}}) == nil {
			sent.Add(1)
		}
	}()
	requireCode(t, codes.ResourceExhausted, flood.ended())
	require.Greater(t, sent.Load(), int64(100), "a burst is allowed")
}

func TestNothingIsLostWhileTheStoreIsAway(t *testing.T) {
	x := &toxic{}
	p := startPlane(t, planeConfig{
		wrap:    func(s *store.Store) fullStore { x.Store = s; return x },
		options: session.Options{Pools: []spillway.Pool{linuxPool(4), macPool()}},
	})
	r := p.linux("m1", 4)
	p.mustPush(job("j1"), job("j2"), job("j3"), job("j4"), job("j5"), job("j6"))
	attempts := map[string]int32{}
	for range 4 {
		a := r.assigned()
		attempts[a.GetJob().GetId()] = a.GetAttempt()
	}
	x.away.Store(true)
	for id, attempt := range attempts {
		r.accept(id, attempt)
		r.finish(id, attempt)
		r.finish(id, attempt) // impatient
	}
	require.Eventually(t, func() bool { return x.failures.Load() > 3 }, patience, tick)
	require.Empty(t, acksOf(r), "nothing is acknowledged before it is stored")
	x.away.Store(false)
	acked := map[string]bool{}
	for range attempts {
		ack := r.acked()
		require.False(t, ack.GetStale())
		acked[ack.GetJobId()] = true
	}
	require.Len(t, acked, 4)
	for range 2 { // the rest is claimed, too
		a := r.assigned()
		r.finish(a.GetJob().GetId(), a.GetAttempt())
	}
	for i := range 6 {
		require.EqualValues(t, 1, p.waitFor(fmt.Sprintf("j%d", i+1), completed).GetAttempt(), "each job was started once")
	}
}

func TestAWriteOfUnknownOutcomeIsRepeated(t *testing.T) {
	x := &toxic{}
	p := startPlane(t, planeConfig{wrap: func(s *store.Store) fullStore { x.Store = s; return x }})
	r := p.linux("m1", 1)
	p.mustPush(job("j1"))
	a := r.assigned()
	x.deaf.Store(true)
	r.finish("j1", a.GetAttempt())
	require.Eventually(t, func() bool { return x.failures.Load() > 2 }, patience, tick)
	p.waitFor("j1", completed) // it is done, though nobody knows
	x.deaf.Store(false)
	require.False(t, r.acked().GetStale())
	require.Equal(t, 1, p.seen.times("finished"))
}

func TestAMachineIsNotTakenInWhileItsJobsCantBeVerified(t *testing.T) {
	x := &toxic{}
	p := startPlane(t, planeConfig{wrap: func(s *store.Store) fullStore { x.Store = s; return x }})
	x.away.Store(true)
	r := p.open(linuxToken)
	r.say(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: &runnerv1.Register{MachineId: "m1", Capacity: 1, Running: inventedJobs(1)}}})
	requireCode(t, codes.Unavailable, r.ended())
	late := p.linux("m1", 1) // nothing to verify
	late.finish("invented-0", 1)
	requireCode(t, codes.Unavailable, late.ended())
	x.away.Store(false)
	again := p.linux("m1", 1)
	again.finish("invented-0", 1)
	require.True(t, again.acked().GetStale())
}

func TestSecretsStayOutOfWhatIsTold(t *testing.T) {
	p := startPlane(t, planeConfig{options: session.Options{Timeouts: router.Timeouts{Unmatched: time.Millisecond}}})
	const canary = "c4n4ry"
	secret := job("j1")
	secret.Script, secret.Env = "echo "+canary, map[string]string{"TOKEN": canary}
	broken := job("j2")
	broken.Env = map[string]string{"TOKEN": canary, "": canary}
	broken.Priority = 77
	odd := job("j3")
	odd.Requirement.Tags, odd.Script = []string{"nobody"}, canary
	acks := p.push(secret, broken, odd)
	require.Equal(t, jobsv1.PushStatus_PUSH_STATUS_INVALID, acks[1].GetStatus())
	r := p.linux("m1", 1)
	a := r.assigned()
	require.Equal(t, canary, a.GetJob().GetEnv()["TOKEN"], "the machine that runs it needs it")
	r.accept("j1", a.GetAttempt())
	r.finish("j1", a.GetAttempt())
	p.waitFor("j1", completed)
	p.waitFor("j3", rejected)
	list, err := p.jobs.List(context.Background(), &jobsv1.ListRequest{})
	require.NoError(t, err)
	for _, text := range []string{p.seen.text(), acks[1].String(), list.String()} {
		require.NotContains(t, text, canary)
		require.NotContains(t, text, linuxToken)
	}
}

func acksOf(r *runner) (acks []*runnerv1.StatusAck) {
	for {
		select {
		case m := <-r.messages:
			if ack := m.GetStatusAck(); ack != nil {
				acks = append(acks, ack)
			}
			r.asides = append(r.asides, m)
		default:
			return acks
		}
	}
}

func TestTheListenersLimits(t *testing.T) {
	p := startPlane(t, planeConfig{})
	_, err := p.jobs.Get(metadata.AppendToOutgoingContext(context.Background(), "x", strings.Repeat("h", session.MaxHeaderBytes)), &jobsv1.GetRequest{JobId: "j"})
	require.Error(t, err, "headers are bounded")
	require.NotEqual(t, codes.NotFound, status.Code(err))
	_, err = p.jobs.Get(metadata.AppendToOutgoingContext(context.Background(), "x", strings.Repeat("h", session.MaxHeaderBytes/2)), &jobsv1.GetRequest{JobId: "j"})
	requireCode(t, codes.NotFound, err)

	refused := make(chan error, session.MaxStreamsPerConnection)
	for range cap(refused) { // more watchers than one replica serves
		watch, err := p.jobs.Watch(context.Background(), &jobsv1.WatchRequest{})
		require.NoError(t, err)
		go func() { _, err := watch.Recv(); refused <- err }()
	}
	requireCode(t, codes.ResourceExhausted, <-refused)
}
