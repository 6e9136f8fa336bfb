package server

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

// Limits of one question.
const (
	DefaultDecisions = 10    // of Explain
	MaxDecisions     = 1_000 // of Explain
)

// Admin is the administration service.
type Admin struct {
	adminv1.UnimplementedAdminServiceServer

	sources Sources
}

// NewAdmin answers from sources.
func NewAdmin(sources Sources) *Admin { return &Admin{sources: sources} }

// ListPools lists every pool of the configuration.
func (a *Admin) ListPools(ctx context.Context, _ *adminv1.ListPoolsRequest) (*adminv1.ListPoolsResponse, error) {
	pools, err := a.sources.Pools.Pools(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	resp := &adminv1.ListPoolsResponse{At: timestamp(time.Now())}
	for i := range pools {
		resp.Pools = append(resp.Pools, poolToProto(&pools[i]))
	}
	return resp, nil
}

// ListDemand lists the signals and the classes of waiting jobs, all of them or those
// that runners of one fingerprint can take.
func (a *Admin) ListDemand(ctx context.Context, req *adminv1.ListDemandRequest) (*adminv1.ListDemandResponse, error) {
	view, err := a.sources.Demand.Demand(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	if prefix := req.GetFingerprint(); prefix != "" {
		pool, err := a.fingerprint(ctx, prefix)
		if err != nil {
			return nil, err
		}
		view = view.takenBy(&pool.Pool.Capability)
	}
	return demandToProto(view), nil
}

// minFingerprint is how much of a fingerprint has to be named [hex digits]: as much as
// the lists show.
const minFingerprint = 12

// fingerprint returns the first pool of a fingerprint.
func (a *Admin) fingerprint(ctx context.Context, prefix string) (PoolStatus, error) {
	if len(prefix) < minFingerprint {
		return PoolStatus{}, status.Errorf(codes.InvalidArgument, "fingerprint %.80q: write at least %d of its hex digits", prefix, minFingerprint)
	}
	pools, err := a.sources.Pools.Pools(ctx)
	if err != nil {
		return PoolStatus{}, asStatus(err)
	}
	for _, p := range pools {
		if strings.HasPrefix(p.Pool.Capability.Fingerprint().String(), prefix) {
			return p, nil
		}
	}
	return PoolStatus{}, status.Errorf(codes.NotFound, "no pool has the fingerprint %.80q: spillwayctl demand lists them", prefix)
}

// ListSources lists where demand comes from.
func (a *Admin) ListSources(ctx context.Context, _ *adminv1.ListSourcesRequest) (*adminv1.ListSourcesResponse, error) {
	feeds, err := a.sources.Feeds.Feeds(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	resp := &adminv1.ListSourcesResponse{At: timestamp(time.Now())}
	for _, f := range feeds {
		resp.Sources = append(resp.Sources, feedToProto(f))
	}
	return resp, nil
}

// ListRunners lists the machines of one pool, of one fingerprint, or all.
func (a *Admin) ListRunners(ctx context.Context, req *adminv1.ListRunnersRequest) (*adminv1.ListRunnersResponse, error) {
	pools, err := a.pools(ctx, req.GetPool())
	if err != nil {
		return nil, err
	}
	if prefix := req.GetFingerprint(); prefix != "" {
		if _, err := a.fingerprint(ctx, prefix); err != nil {
			return nil, err
		}
	}
	machines, err := a.sources.Runners.Runners(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	fingerprints := make(map[string]string, len(pools))
	for _, p := range pools {
		fingerprints[p.Pool.Name] = p.Pool.Capability.Fingerprint().String()
	}
	now := time.Now()
	silentAfter := cmp.Or(a.sources.SilentAfter, spillway.SilentAfter)
	resp := &adminv1.ListRunnersResponse{At: timestamp(now)}
	for _, m := range machines {
		if (req.GetPool() == "" || m.Pool == req.GetPool()) && strings.HasPrefix(fingerprints[m.Pool], req.GetFingerprint()) {
			resp.Runners = append(resp.Runners, runnerToProto(m, fingerprints[m.Pool], now.Sub(m.HeardAt) >= silentAfter))
		}
	}
	return resp, nil
}

// ListPlugins lists the plugin processes.
func (a *Admin) ListPlugins(ctx context.Context, _ *adminv1.ListPluginsRequest) (*adminv1.ListPluginsResponse, error) {
	plugins, err := a.sources.Plugins.Plugins(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	resp := &adminv1.ListPluginsResponse{At: timestamp(time.Now())}
	for _, p := range plugins {
		resp.Plugins = append(resp.Plugins, pluginToProto(p))
	}
	return resp, nil
}

// Explain returns a pool's newest decisions.
func (a *Admin) Explain(ctx context.Context, req *adminv1.ExplainRequest) (*adminv1.ExplainResponse, error) {
	limit := cmp.Or(int(req.GetLimit()), DefaultDecisions)
	switch {
	case limit < 0 || limit > MaxDecisions:
		return nil, status.Errorf(codes.InvalidArgument, "limit %d is out of range; use 1 to %d, or 0 for %d", limit, MaxDecisions, DefaultDecisions)
	case req.GetPool() == "":
		return nil, status.Error(codes.InvalidArgument, "name the pool whose decisions to explain")
	}
	if _, err := a.pools(ctx, req.GetPool()); err != nil {
		return nil, err
	}
	entries, err := a.sources.Ledger.Ledger(ctx, req.GetPool(), limit)
	if err != nil {
		return nil, asStatus(err)
	}
	resp := &adminv1.ExplainResponse{}
	for _, e := range entries[:min(len(entries), limit)] {
		resp.Decisions = append(resp.Decisions, decisionToProto(e))
	}
	return resp, nil
}

// WhyNot says for each pool what keeps a job from running there.
func (a *Admin) WhyNot(ctx context.Context, req *adminv1.WhyNotRequest) (*adminv1.WhyNotResponse, error) {
	id, err := jobID(req.GetJobId())
	if err != nil {
		return nil, err
	}
	answer, err := a.sources.WhyNot.WhyNot(ctx, id)
	if err != nil {
		return nil, asJobStatus(err, string(id))
	}
	return explanationToProto(answer), nil
}

// pools returns every pool; NotFound if there is none of that name, unless it is
// empty.
func (a *Admin) pools(ctx context.Context, name string) ([]PoolStatus, error) {
	pools, err := a.sources.Pools.Pools(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	if name == "" || slices.ContainsFunc(pools, func(p PoolStatus) bool { return p.Pool.Name == name }) {
		return pools, nil
	}
	names := make([]string, 0, len(pools))
	for _, p := range pools {
		names = append(names, p.Pool.Name)
	}
	return nil, status.Errorf(codes.NotFound, "there is no pool %.80q; %s", name, listed(names))
}
