package main

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// fakeCells is one cell of four: it hands over to two, of which one is cut off, and has
// jobs of another.
type fakeCells struct {
	cellsv1.UnimplementedCellServiceServer
}

func (fakeCells) ListCells(context.Context, *cellsv1.ListCellsRequest) (*cellsv1.ListCellsResponse, error) {
	return &cellsv1.ListCellsResponse{
		Name: "eu", Region: "eu-west-1",
		Peers: []*cellsv1.Peer{
			{
				Name: "us", Region: "us-east-1", Address: "10.1.0.5:7701", State: "linked", Since: durationpb.New(90 * time.Minute), HandedOver: 3,
				Pools: []*cellsv1.PeerPool{
					{Pool: "cell-us-0123456789ab", Capability: &typesv1.Capability{Tags: []string{"docker", "linux"}}, Free: 7, Growth: 40, CostPerJob: 0.25, HandedOver: 3},
					{Pool: "cell-us-ba9876543210", Capability: &typesv1.Capability{RunUntagged: true}, Free: 1},
				},
			},
			{Name: "ap", Address: "10.2.0.5:7701", State: "cut_off", Since: durationpb.New(12 * time.Second), Detail: "connection refused\x1b[2J"},
		},
		Origins: []*cellsv1.Origin{{Name: "sa", Region: "sa-east-1", State: "linked", Since: durationpb.New(time.Hour), Jobs: 12}},
	}, nil
}
