package session

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
)

// ListCells tells of this cell, its peers and its origins, as this replica knows them.
func (r *Receiver) ListCells(ctx context.Context, _ *cellsv1.ListCellsRequest) (*cellsv1.ListCellsResponse, error) {
	if r == nil {
		return &cellsv1.ListCellsResponse{}, nil
	}
	resp := &cellsv1.ListCellsResponse{Name: r.opt.Cell, Region: r.opt.Region}
	if r.origin != nil {
		for _, v := range r.origin.Peers() {
			resp.Peers = append(resp.Peers, peerToProto(v))
		}
	}
	for _, v := range r.Origins(ctx) {
		resp.Origins = append(resp.Origins, &cellsv1.Origin{Name: v.Name, Region: v.Region, State: v.State, Since: ago(v.Since), Jobs: int32(v.Jobs)})
	}
	return resp, nil
}

func peerToProto(v PeerView) *cellsv1.Peer {
	p := &cellsv1.Peer{
		Name: v.Name, Region: v.Region, Address: v.Address, State: v.State, Detail: v.Detail, Since: ago(v.Since), HandedOver: int32(v.HandedOver),
	}
	slices.SortFunc(v.Pools, func(a, b PoolView) int { return strings.Compare(a.Pool.Name, b.Pool.Name) })
	for _, pool := range v.Pools {
		p.Pools = append(p.Pools, &cellsv1.PeerPool{
			Pool: pool.Pool.Name, Capability: capabilityToProto(pool.Pool.Capability), Free: int32(pool.Offer.Free), Growth: int32(pool.Offer.Growth),
			CostPerJob: pool.Pool.CostPerJob, HandedOver: int32(pool.HandedOver),
		})
	}
	return p
}

func ago(t time.Time) *durationpb.Duration {
	return durationpb.New(time.Since(t).Truncate(time.Millisecond))
}
