package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler"
	"github.com/spillway-ci/spillway/server"
)

func TestMachinesOfAPoolThatNobodyScalesAreItsInstances(t *testing.T) {
	var s server.PoolStatus
	countMachines(&s, []router.Machine{
		{Connected: true},
		{Connected: true, Busy: 1},
		{Connected: true, Assigned: 1},
		{Connected: true, Draining: true, Busy: 1},
		{Connected: true, StoppingSince: time.Unix(1, 0)},
		{Busy: 1},
	})
	require.Equal(t, server.PoolStatus{InService: 3, Idle: 1, Draining: 2, Lost: 1, Running: 3}, s)
}

func TestWhatOnlyARegisteredPoolCanTakeIsNotUnmatched(t *testing.T) {
	class := func(tag string) demand.Class {
		r := spillway.Requirement{Tags: []string{tag}}
		return demand.Class{ID: r.Class(), Requirement: r, Pending: 4}
	}
	pic := &scaler.Picture{
		Classes: []demand.Class{class("pool:gpu"), class("nobody's")},
		Attribution: demand.Attribution{Unmatched: []demand.Unmatched{
			{Class: 0, Jobs: 4, Predicate: "tags"}, {Class: 1, Jobs: 4, Predicate: "tags"},
		}},
	}
	v := demandView(pic, []spillway.Pool{{Name: "gpu", Capability: spillway.Capability{Tags: []string{"pool:gpu"}}}})
	require.Equal(t, []any{0, map[string]int{"gpu": 4}}, []any{v.Classes[0].Unmatched, v.Classes[0].Attributed})
	require.Equal(t, []any{4, map[string]int{}}, []any{v.Classes[1].Unmatched, v.Classes[1].Attributed})
}
