package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spillway-ci/spillway"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/server"
	"github.com/spillway-ci/spillway/store"
)

// chooser answers for one job.
type chooser struct{ choice server.JobChoice }

func (c chooser) Choice(_ context.Context, id spillway.JobID) (server.JobChoice, error) {
	if id != c.choice.Record.Job.ID {
		return server.JobChoice{}, store.ErrUnknownJob
	}
	return c.choice, nil
}

var morning = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func pendingJob() spillway.JobRecord {
	return spillway.JobRecord{State: spillway.Pending, Job: spillway.Job{ID: "j1", Script: "secret", SubmittedAt: morning}}
}

func choiceOf(pools ...router.PoolChoice) router.Choice {
	return router.Choice{At: morning, Waiting: 3, Unadmitted: 1, Running: 2, Pools: pools}
}

func TestExplainJobTellsEveryPool(t *testing.T) {
	choice := choiceOf(
		router.PoolChoice{Pool: "spot", Outcome: router.OutcomeGrowing, Room: 2, Detail: "may grow"},
		router.PoolChoice{Pool: "mac", Outcome: router.OutcomeNoMatch, Verdict: router.Verdict{Predicate: router.PredicateTags, Detail: "lacks"}, Detail: "lacks"},
		router.PoolChoice{
			Pool: "warm", Priority: 1, Cost: 0.5, Outcome: router.OutcomeWaits, Free: 2, Remote: 1, Until: morning.Add(time.Minute), Detail: "waits for spot",
			Machines: []router.Score{{Machine: "m-1", Cost: 1, Affinity: 0.5}},
		},
	)
	admin := server.NewAdmin(server.Sources{Choices: chooser{server.JobChoice{Record: pendingJob(), Choice: choice}}})
	resp, err := admin.ExplainJob(t.Context(), &adminv1.ExplainJobRequest{JobId: "j1"})
	require.NoError(t, err)
	require.Empty(t, resp.GetRecord().GetJob().GetScript())
	require.Equal(t, []int64{3, 1, 2}, []int64{resp.GetWaiting(), resp.GetUnadmitted(), resp.GetProjectRunning()})
	require.Equal(t, "The job waits. It can run in spot, warm. Pool warm has a place, and a better pool is waited for: waits for spot.", resp.GetSummary())
	require.False(t, resp.GetPools()[1].GetCanTake())
	require.Equal(t, "tags", resp.GetPools()[1].GetPredicate())
	warm := resp.GetPools()[2]
	require.Equal(t, "waits_for_better", warm.GetOutcome())
	require.Equal(t, []int64{2, 1}, []int64{warm.GetFree(), warm.GetElsewhere()})
	require.Equal(t, morning.Add(time.Minute), warm.GetUntil().AsTime())
	require.InDelta(t, 1.5, warm.GetMachines()[0].GetSum(), 1e-9)

	_, err = admin.ExplainJob(t.Context(), &adminv1.ExplainJobRequest{JobId: "j2"})
	requireStatus(t, err, codes.NotFound, `there is no job "j2"`)
	_, err = admin.ExplainJob(t.Context(), &adminv1.ExplainJobRequest{})
	requireStatus(t, err, codes.InvalidArgument, "name the job")
	_, err = admin.ExplainJob(t.Context(), &adminv1.ExplainJobRequest{JobId: strings.Repeat("x", spillway.MaxJobIDBytes+1)})
	requireStatus(t, err, codes.InvalidArgument, "at most 128 bytes")
}

func TestSummariesOfAChoice(t *testing.T) {
	for name, c := range map[string]struct {
		choice router.Choice
		want   string
	}{
		"a machine": {
			choiceOf(router.PoolChoice{Pool: "p", Outcome: router.OutcomeFree, Free: 1, Machines: []router.Score{{Machine: "m-1"}}}),
			"Machine m-1 of pool p is the best place for it now.",
		},
		"no place":  {choiceOf(router.PoolChoice{Pool: "p", Outcome: router.OutcomeFull}), "It can run in p, and none of these has a place now."},
		"admission": {choiceOf(router.PoolChoice{Pool: "p", Outcome: router.OutcomeUnadmitted}), "It waits for admission."},
		"no pool":   {choiceOf(router.PoolChoice{Pool: "p", Outcome: router.OutcomeNoMatch, Verdict: router.Verdict{Predicate: router.PredicateTags}}), "None of 1 pools can take the job"},
		"its turn":  {withBefore(choiceOf(router.PoolChoice{Pool: "p", Outcome: router.OutcomeFree, Free: 1}), 7), "7 jobs come before it."},
		"refused": {
			choiceOf(router.PoolChoice{Pool: "cell-us-1", Outcome: router.OutcomeRefused, Detail: "cell us refused it: no"}),
			"Pool cell-us-1 may not have it: cell us refused it: no.",
		},
		"cooled off": {choiceOf(router.PoolChoice{Pool: "p", Outcome: router.OutcomeCooledOff}), "none of these has a place now"},
	} {
		t.Run(name, func(t *testing.T) {
			admin := server.NewAdmin(server.Sources{Choices: chooser{server.JobChoice{Record: pendingJob(), Choice: c.choice}}})
			resp, err := admin.ExplainJob(t.Context(), &adminv1.ExplainJobRequest{JobId: "j1"})
			require.NoError(t, err)
			require.Contains(t, resp.GetSummary(), c.want)
		})
	}
}

func withBefore(c router.Choice, n int) router.Choice {
	c.ServedBefore = n
	return c
}

func TestWhyNotKnowsWhatTheRouterWaitsFor(t *testing.T) {
	explained := func() server.JobExplanation {
		return server.JobExplanation{
			Record: pendingJob(), Summary: "The job waits.",
			Verdicts: []server.PoolVerdict{{Pool: "spot", CanTake: true, Detail: "could take it; 3 instances may still be launched"}, {Pool: "warm", CanTake: true, Detail: "could take it now"}},
		}
	}
	choice := choiceOf(
		router.PoolChoice{Pool: "spot", Outcome: router.OutcomeGrowing, Detail: "may grow"},
		router.PoolChoice{Pool: "warm", Outcome: router.OutcomeWaits, Detail: "1 place free here; until noon the job waits for spot"},
	)
	e := explained().InLightOf(choice)
	require.Equal(t, "could take it; 3 instances may still be launched", e.Verdicts[0].Detail)
	require.Equal(t, "could take it; 1 place free here; until noon the job waits for spot", e.Verdicts[1].Detail)
	require.Contains(t, e.Summary, "a better pool is waited for")

	ended := explained()
	ended.Record.State = spillway.Completed
	require.Equal(t, ended.Summary, ended.InLightOf(choice).Summary)
}
