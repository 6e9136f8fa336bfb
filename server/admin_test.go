package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-ci/spillway"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/server"
	"github.com/spillway-ci/spillway/store"
)

// fleet is every source of the administration service, from memory.
type fleet struct {
	pools    []server.PoolStatus
	demand   server.DemandView
	machines []router.Machine
	plugins  []server.PluginStatus
	feeds    []server.FeedStatus
	ledger   []server.LedgerEntry
	record   spillway.JobRecord
	err      error

	silentAfter time.Duration
}

func (f *fleet) Pools(context.Context) ([]server.PoolStatus, error)     { return f.pools, f.err }
func (f *fleet) Demand(context.Context) (server.DemandView, error)      { return f.demand, f.err }
func (f *fleet) Runners(context.Context) ([]router.Machine, error)      { return f.machines, f.err }
func (f *fleet) Plugins(context.Context) ([]server.PluginStatus, error) { return f.plugins, f.err }

func (f *fleet) Feeds(context.Context) ([]server.FeedStatus, error) { return f.feeds, f.err }

func (f *fleet) Ledger(_ context.Context, pool string, _ int) ([]server.LedgerEntry, error) {
	var of []server.LedgerEntry
	for _, e := range f.ledger {
		if e.Pool == pool {
			of = append(of, e)
		}
	}
	return of, f.err
}

func (f *fleet) WhyNot(_ context.Context, id spillway.JobID) (server.JobExplanation, error) {
	if id != f.record.Job.ID {
		return server.JobExplanation{}, fmt.Errorf("looking up: %w", store.ErrUnknownJob)
	}
	return server.ExplainJob(f.record, f.pools), f.err
}

func (f *fleet) admin() *server.Admin {
	return server.NewAdmin(server.Sources{Pools: f, Demand: f, Runners: f, Plugins: f, Feeds: f, Ledger: f, WhyNot: f, SilentAfter: f.silentAfter})
}

func twoPools() *fleet {
	return &fleet{pools: []server.PoolStatus{{Pool: testPool("linux"), Max: 4}, {Pool: testPool("gpu"), Max: 2}}}
}

func requireStatus(t *testing.T, err error, code codes.Code, sentence string) {
	t.Helper()
	s, ok := status.FromError(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, code, s.Code(), s.Message())
	require.Contains(t, s.Message(), sentence)
}

func TestListPools(t *testing.T) {
	at := time.Unix(1_700_000_000, 0).UTC()
	pool := testPool("linux")
	pool.Priority, pool.CapacityPerInstance = 2, 3
	f := &fleet{pools: []server.PoolStatus{{
		Pool: pool, Min: 1, Max: 9, Pending: 2, Running: 3, Desired: 4, InService: 5, Idle: 1, Booting: 6, Draining: 7, Lost: 8,
		Reason: policy.ReasonMax, Hold: policy.ReasonHoldStale, Finding: "provider_down: glrt-abcdefghijkl", DecidedAt: at,
	}}}
	resp, err := f.admin().ListPools(t.Context(), &adminv1.ListPoolsRequest{})
	require.NoError(t, err)
	require.NotNil(t, resp.GetAt())
	p := resp.GetPools()[0]
	require.Equal(t, at, p.GetDecidedAt().AsTime())
	p.DecidedAt = nil
	require.True(t, proto.Equal(&adminv1.PoolStatus{
		Name: "linux", Provider: "mine", Group: "linux", Fingerprint: pool.Capability.Fingerprint().String(),
		Capability: &typesv1.Capability{Tags: []string{"linux"}, Type: "instance"},
		Priority:   2, CapacityPerInstance: 3, Min: 1, Max: 9, Pending: 2, Running: 3, Desired: 4, InService: 5, Booting: 6,
		Draining: 7, Lost: 8, Hold: "hold_stale", LastReason: "max", Finding: "provider_down: glrt-[MASKED]",
	}, p), p.String())
}

func TestListDemand(t *testing.T) {
	at := time.Unix(1_700_000_000, 0).UTC()
	fp := testPool("linux").Capability.Fingerprint()
	f := &fleet{demand: server.DemandView{
		At:      at,
		Signals: []spillway.Signal{spillway.NewSignal(fp, 6, 4, at)},
		Classes: []server.ClassDemand{{
			Class: "c1", Requirement: spillway.Requirement{Tags: []string{"b", "a"}, Project: 7, Resources: spillway.Resources{MemoryMiB: 64}},
			Pending: 6, Oldest: at.Add(-90 * time.Second), Attributed: map[string]int{"linux": 4}, Unmatched: 1, Overflow: 1, Reason: "tags",
		}},
	}}
	resp, err := f.admin().ListDemand(t.Context(), &adminv1.ListDemandRequest{})
	require.NoError(t, err)
	require.Equal(t, at, resp.GetAt().AsTime())
	require.InDelta(t, 1.5, resp.GetSignals()[0].GetDemandPerRunner(), 0)
	require.Equal(t, fp.String(), resp.GetSignals()[0].GetFingerprint())
	c := resp.GetClasses()[0]
	require.Equal(t, 90*time.Second, c.GetOldest().AsDuration())
	require.Equal(t, []string{"a", "b"}, c.GetRequirement().GetTags())
	require.Equal(t, int64(64), c.GetRequirement().GetResources().GetMemoryMib())
	require.Equal(t, map[string]int64{"linux": 4}, c.GetAttributed())
	require.Equal(t, []int64{6, 1, 1}, []int64{c.GetPending(), c.GetUnmatched(), c.GetOverflow()})
}

// Jobs and runners of one fingerprint, by as much of it as the lists show.
func TestA1_ListsByFingerprint(t *testing.T) {
	f := twoPools()
	linux := testPool("linux").Capability.Fingerprint()
	f.demand = server.DemandView{
		Signals: []spillway.Signal{{Fingerprint: linux, TotalJobs: 2}, {Fingerprint: testPool("gpu").Capability.Fingerprint()}},
		Classes: []server.ClassDemand{
			{Class: "a", Requirement: spillway.Requirement{Tags: []string{"linux"}}, Pending: 2, Sample: []spillway.JobID{"7", "9"}},
			{Class: "b", Requirement: spillway.Requirement{Tags: []string{"gpu"}}, Pending: 1},
		},
	}
	f.machines = []router.Machine{{ID: "m-1", Pool: "linux"}, {ID: "m-2", Pool: "gpu"}}

	demand, err := f.admin().ListDemand(t.Context(), &adminv1.ListDemandRequest{Fingerprint: linux.Short()})
	require.NoError(t, err)
	require.Len(t, demand.GetSignals(), 1)
	require.Len(t, demand.GetClasses(), 1)
	require.Equal(t, []string{"7", "9"}, demand.GetClasses()[0].GetJobIds())
	runners, err := f.admin().ListRunners(t.Context(), &adminv1.ListRunnersRequest{Fingerprint: linux.String()})
	require.NoError(t, err)
	require.Len(t, runners.GetRunners(), 1)
	require.Equal(t, "m-1", runners.GetRunners()[0].GetMachineId())

	_, err = f.admin().ListDemand(t.Context(), &adminv1.ListDemandRequest{Fingerprint: "abc"})
	requireStatus(t, err, codes.InvalidArgument, "at least 12")
	_, err = f.admin().ListRunners(t.Context(), &adminv1.ListRunnersRequest{Fingerprint: "000000000000"})
	requireStatus(t, err, codes.NotFound, "no pool has the fingerprint")
}

func TestListSources(t *testing.T) {
	at := time.Unix(1_700_000_000, 0).UTC()
	f := &fleet{feeds: []server.FeedStatus{
		{Name: "gitlab", Every: 10 * time.Second, GoodAt: at, Error: "HTTP 401 for glpat-abcdefghijklmnopqrst", Partial: true, Calls: 7},
		{Name: "webhook"},
	}}
	resp, err := f.admin().ListSources(t.Context(), &adminv1.ListSourcesRequest{})
	require.NoError(t, err)
	gitlab, hook := resp.GetSources()[0], resp.GetSources()[1]
	require.Equal(t, at, gitlab.GetGoodAt().AsTime())
	require.Equal(t, 10*time.Second, gitlab.GetEvery().AsDuration())
	require.NotContains(t, gitlab.GetError(), "abcdefghij", "a secret in an error")
	require.True(t, gitlab.GetPartial())
	require.Equal(t, int64(7), gitlab.GetCalls())
	require.Nil(t, hook.GetEvery(), "it tells by itself")
	require.Nil(t, hook.GetGoodAt())
}

func TestListRunners(t *testing.T) {
	now := time.Now()
	f := twoPools()
	f.machines = []router.Machine{
		{ID: "m1", InstanceID: "i-1", Pool: "linux", Capacity: 2, Busy: 1, Assigned: 2, HeardAt: now, Version: "v1"},
		{ID: "m2", Pool: "gpu", StoppingSince: now, HeardAt: now.Add(-spillway.SilentAfter - time.Second), Paused: true, Unhealthy: "no disk"},
	}
	resp, err := f.admin().ListRunners(t.Context(), &adminv1.ListRunnersRequest{})
	require.NoError(t, err)
	require.Len(t, resp.GetRunners(), 2)
	m1, m2 := resp.GetRunners()[0], resp.GetRunners()[1]
	require.Equal(t, int32(2), m1.GetBusy(), "what the router knows counts too")
	require.False(t, m1.GetSilent())
	require.Equal(t, testPool("linux").Capability.Fingerprint().String(), m1.GetFingerprint())
	require.True(t, m2.GetSilent())
	require.True(t, m2.GetDraining())
	require.False(t, m1.GetPaused())
	require.True(t, m2.GetPaused())
	require.Equal(t, "no disk", m2.GetUnhealthy())

	resp, err = f.admin().ListRunners(t.Context(), &adminv1.ListRunnersRequest{Pool: "gpu"})
	require.NoError(t, err)
	require.Len(t, resp.GetRunners(), 1)

	_, err = f.admin().ListRunners(t.Context(), &adminv1.ListRunnersRequest{Pool: "linus"})
	requireStatus(t, err, codes.NotFound, `there is no pool "linus"; there are linux, gpu`)
}

// Which machine is silent is the control plane's to judge, by its own setting.
func TestListRunnersJudgesSilenceByItsSetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ setting, age time.Duration }{
			{0, spillway.SilentAfter}, {3 * time.Second, 3 * time.Second}, {2 * time.Minute, 2 * time.Minute},
		} {
			f := twoPools()
			f.silentAfter = c.setting
			now := time.Now()
			f.machines = []router.Machine{
				{ID: "heard", Pool: "linux", HeardAt: now.Add(-c.age + 2*time.Second)}, {ID: "silent", Pool: "linux", HeardAt: now.Add(-c.age)},
			}
			resp, err := f.admin().ListRunners(t.Context(), &adminv1.ListRunnersRequest{})
			require.NoError(t, err)
			require.False(t, resp.GetRunners()[0].GetSilent(), "%s", c.setting)
			require.True(t, resp.GetRunners()[1].GetSilent(), "%s", c.setting)
			require.WithinRange(t, resp.GetAt().AsTime(), now, time.Now(), "ages are by the same clock")
		}
	})
}

func TestListPlugins(t *testing.T) {
	f := &fleet{plugins: []server.PluginStatus{{
		Provider: "mine", Name: "local", Version: "1.2.3", Path: "/p", SHA256: "ab", State: "backoff", PID: 7, Restarts: 2,
		LastError: "Bearer abcdefghijkl", Capabilities: []string{"withdraw"}, StartedAt: time.Unix(5, 0),
	}}}
	resp, err := f.admin().ListPlugins(t.Context(), &adminv1.ListPluginsRequest{})
	require.NoError(t, err)
	p := resp.GetPlugins()[0]
	require.Equal(t, "Bearer [MASKED]", p.GetLastError())
	require.Equal(t, int64(5), p.GetStartedAt().GetSeconds())
	require.Equal(t, []string{"mine", "local", "1.2.3", "/p", "ab", "backoff"},
		[]string{p.GetProvider(), p.GetName(), p.GetVersion(), p.GetPath(), p.GetSha256(), p.GetState()})
}

func TestExplain(t *testing.T) {
	f := twoPools()
	for i := range 12 {
		f.ledger = append(f.ledger, server.LedgerEntry{
			At: time.Unix(int64(i), 0), Pool: "linux", From: i, To: i + 1, Direction: policy.Out, Reason: policy.ReasonDemand,
			Trace: []policy.Trace{{Step: "need", Before: i, After: i + 1, Why: "one job waits"}}, Action: "set_desired(1)", Result: "ok", Epoch: 9,
		})
	}
	resp, err := f.admin().Explain(t.Context(), &adminv1.ExplainRequest{Pool: "linux"})
	require.NoError(t, err)
	require.Len(t, resp.GetDecisions(), server.DefaultDecisions)
	require.True(t, proto.Equal(&adminv1.Step{Name: "need", Before: 0, After: 1, Why: "one job waits"}, resp.GetDecisions()[0].GetTrace()[0]))

	resp, err = f.admin().Explain(t.Context(), &adminv1.ExplainRequest{Pool: "gpu"})
	require.NoError(t, err)
	require.Empty(t, resp.GetDecisions())

	resp, err = f.admin().Explain(t.Context(), &adminv1.ExplainRequest{Pool: "linux", Limit: server.MaxDecisions})
	require.NoError(t, err)
	require.Len(t, resp.GetDecisions(), 12)
	_, err = f.admin().Explain(t.Context(), &adminv1.ExplainRequest{Pool: "linux", Limit: server.MaxDecisions + 1})
	requireStatus(t, err, codes.InvalidArgument, "limit 1001 is out of range")
	_, err = f.admin().Explain(t.Context(), &adminv1.ExplainRequest{})
	requireStatus(t, err, codes.InvalidArgument, "name the pool")
	_, err = f.admin().Explain(t.Context(), &adminv1.ExplainRequest{Pool: "x"})
	requireStatus(t, err, codes.NotFound, "there are linux, gpu")
}

func TestWhyNot(t *testing.T) {
	f := twoPools()
	f.pools[0].InService, f.pools[0].Booting = 3, 1
	f.record = spillway.JobRecord{
		Job:   spillway.Job{ID: "j1", Script: "secret", Requirement: spillway.Requirement{Tags: []string{"linux"}}},
		State: spillway.Pending,
	}
	resp, err := f.admin().WhyNot(t.Context(), &adminv1.WhyNotRequest{JobId: "j1"})
	require.NoError(t, err)
	require.Empty(t, resp.GetRecord().GetJob().GetScript())
	require.Equal(t, "The job waits. It can run in linux.", resp.GetSummary())
	require.True(t, resp.GetVerdicts()[0].GetCanTake())
	require.Equal(t, "could take it when one of 1 booting instances has registered", resp.GetVerdicts()[0].GetDetail())
	require.False(t, resp.GetVerdicts()[1].GetCanTake())
	require.Equal(t, "tags", resp.GetVerdicts()[1].GetPredicate())
	require.Contains(t, resp.GetVerdicts()[1].GetDetail(), `"linux"`)

	_, err = f.admin().WhyNot(t.Context(), &adminv1.WhyNotRequest{JobId: "j2"})
	requireStatus(t, err, codes.NotFound, `there is no job "j2"`)
	_, err = f.admin().WhyNot(t.Context(), &adminv1.WhyNotRequest{})
	requireStatus(t, err, codes.InvalidArgument, "name the job")
	_, err = f.admin().WhyNot(t.Context(), &adminv1.WhyNotRequest{JobId: strings.Repeat("x", spillway.MaxJobIDBytes+1)})
	requireStatus(t, err, codes.InvalidArgument, "at most 128 bytes")
}

// A pool without a provider has machines that come by themselves: nothing may be launched.
func TestExplainJobOfAPoolThatNobodyScales(t *testing.T) {
	pool := testPool("gpu")
	pool.Provider = ""
	record := spillway.JobRecord{State: spillway.Pending, Job: spillway.Job{ID: "j", Requirement: spillway.Requirement{Tags: []string{"gpu"}}}}
	explained := func(s server.PoolStatus) string {
		s.Pool = pool
		return server.ExplainJob(record, []server.PoolStatus{s}).Verdicts[0].Detail
	}
	require.Equal(t, "could take it when one of its machines is free: 2 are there, and they come by themselves", explained(server.PoolStatus{InService: 2}))
	require.Equal(t, "could take it now: 1 of 2 instances are free", explained(server.PoolStatus{InService: 2, Idle: 1}))
}

func TestExplainJob(t *testing.T) {
	job := spillway.Job{ID: "j", Requirement: spillway.Requirement{Tags: []string{"linux"}}}
	for _, c := range []struct {
		name          string
		record        spillway.JobRecord
		pool          server.PoolStatus
		detail, total string
	}{
		{"free", spillway.JobRecord{State: spillway.Pending}, server.PoolStatus{InService: 2, Idle: 1, Max: 4}, "could take it now: 1 of 2 instances are free", "The job waits. It can run in linux."},
		{"full", spillway.JobRecord{State: spillway.Pending}, server.PoolStatus{InService: 4, Max: 4}, "could take it; it is full, with 4 instances of at most 4", ""},
		{"room", spillway.JobRecord{State: spillway.Pending}, server.PoolStatus{InService: 1, Max: 4, Finding: "cooled_off: quota"}, "could take it; 3 instances may still be launched: cooled_off: quota", ""},
		{"held", spillway.JobRecord{State: spillway.Pending}, server.PoolStatus{Hold: policy.ReasonHoldPaused, Max: 4}, "could take it; the pool is held (hold_paused)", ""},
		{"assigned", spillway.JobRecord{State: spillway.Assigned, Pool: "linux"}, server.PoolStatus{}, "", "has not started it yet"},
		{"running", spillway.JobRecord{State: spillway.Running, Pool: "linux"}, server.PoolStatus{}, "", "The job is running in pool linux."},
		{"ended", spillway.JobRecord{State: spillway.Failed, Result: spillway.JobResult{Reason: spillway.ScriptFailure}}, server.PoolStatus{}, "", "The job has ended: failed (script_failure)."},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.record.Job = job
			c.pool.Pool = testPool("linux")
			e := server.ExplainJob(c.record, []server.PoolStatus{c.pool})
			require.Contains(t, e.Verdicts[0].Detail, c.detail)
			require.Contains(t, e.Summary, c.total)
			if c.record.Pool != "" {
				require.Equal(t, c.pool.Pool.Capability.Fingerprint().String(), e.Fingerprint)
			}
		})
	}
	e := server.ExplainJob(spillway.JobRecord{Job: job, State: spillway.Pending}, []server.PoolStatus{{Pool: testPool("gpu")}})
	require.Contains(t, e.Summary, "None of 1 pools can take the job")
}

func TestErrorsOfSourcesBecomeStatuses(t *testing.T) {
	for _, c := range []struct {
		err      error
		code     codes.Code
		sentence string
	}{
		{store.ErrUnavailable, codes.Unavailable, "the store does not answer"},
		{context.DeadlineExceeded, codes.DeadlineExceeded, "took too long"},
		{context.Canceled, codes.Canceled, ""},
		{fmt.Errorf("x: %w", spillway.ErrInvalid), codes.InvalidArgument, "x: invalid"},
		{fmt.Errorf("token glrt-abcdefghijkl"), codes.Internal, "token glrt-[MASKED]"},
		{status.Error(codes.ResourceExhausted, "slow down"), codes.ResourceExhausted, "slow down"},
	} {
		a := (&fleet{err: c.err}).admin()
		_, err := a.ListPools(t.Context(), nil)
		requireStatus(t, err, c.code, c.sentence)
		_, err = a.ListDemand(t.Context(), nil)
		requireStatus(t, err, c.code, c.sentence)
		_, err = a.ListRunners(t.Context(), nil)
		requireStatus(t, err, c.code, c.sentence)
		_, err = a.ListPlugins(t.Context(), nil)
		requireStatus(t, err, c.code, c.sentence)
		_, err = a.Explain(t.Context(), &adminv1.ExplainRequest{Pool: "linux"})
		requireStatus(t, err, c.code, c.sentence)
	}
}
