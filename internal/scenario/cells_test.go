package scenario_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/scenario"
)

const twoCells = `
replicas: 2
config:
  admission: {controllers: [{name: images}, {name: budget}]}
  cells: {name: east, peers: [{name: west}]}
  pools: [{name: linux, capability: {tags: [docker]}}]
controllers:
  images: {instances: 2, replica: 1, from: 5s, batch: 4, takes: 2s, refuses: {jobs: [burst], tags: [gpu], projects: [9]}}
  budget:
cells:
  west:
    config:
      cells: {name: west}
      pools: [{name: far, capability: {tags: [docker]}}]
    jobs: [{at: 9s, id: own, tags: [docker], duration: 1s}]
    events: [{at: 9s, offers: {fault: lie, free: 3, for: 1m}}, {at: 1s, offers: {fault: stale}}]
jobs: [{at: 0s, id: burst, count: 2, tags: [docker], duration: 1s}, {at: 0s, id: j, tags: [docker], duration: 1s}]
events:
  - {at: 1s, controller: {name: images, nth: 1, fault: slow, takes: 9s}}
  - {at: 2s, controller: {name: budget, fault: gone, for: 5s}}
  - {at: 3s, link: {to: west, fault: cut, for: 2m}}
expect:
  - handed.west.over == 0
  - controller.images.refused == 1
  - failures.admission_timeout == 0
  - job.j.wait <= 5s
  - job.burst-1.rejected == 1
  - cell.west.jobs.completed.at(5s) == 0
  - cell.west.pool.far.launches <= 1
  - cell.west.job.own.completed == 1
  - invariants.I14 == 0
`

func TestControllersAndCells(t *testing.T) {
	s, err := scenario.Parse("s.yaml", []byte(twoCells))
	require.NoError(t, err)
	images := s.Controllers["images"]
	require.Equal(t, scenario.Controller{
		Instances: 2, Replica: 1, From: 5 * time.Second, Batch: 4, Takes: 2 * time.Second,
		Refuses: scenario.Refuses{Jobs: []string{"burst-1", "burst-2"}, Tags: []string{"gpu"}, Projects: []int64{9}},
	}, images)
	require.Equal(t, scenario.Controller{Instances: 1, Replica: -1}, s.Controllers["budget"])
	for refused, job := range map[bool]spillway.Job{
		true:  {ID: "burst-2"},
		false: {ID: "j", Requirement: spillway.Requirement{Tags: []string{"docker"}, Project: 8}},
	} {
		require.Equal(t, refused, images.Refuses.Refused(&job))
	}
	require.Equal(t, scenario.Control{Name: "images", Nth: 1, Fault: scenario.ControllerSlow, Takes: 9 * time.Second, For: scenario.DefaultFaultFor}, s.Events[0].Action)
	require.Equal(t, scenario.Control{Name: "budget", Nth: -1, Fault: scenario.ControllerGone, For: 5 * time.Second}, s.Events[1].Action)
	require.Equal(t, scenario.Link{To: "west", Fault: scenario.LinkCut, For: 2 * time.Minute}, s.Events[2].Action)
	west := s.Cells["west"]
	require.Equal(t, s.Duration, west.Duration)
	require.Len(t, west.Jobs, 1)
	require.Equal(t, scenario.Offers{Fault: scenario.OffersStale, For: scenario.DefaultFaultFor}, west.Events[0].Action, "in the order of time")
	require.Equal(t, scenario.Offers{Fault: scenario.OffersLie, Free: 3, For: time.Minute}, west.Events[1].Action)
}

func TestMistakesOfControllersAndCells(t *testing.T) {
	const base = `
config:
  admission: {controllers: [{name: images}]}
  cells: {name: east, peers: [{name: west}]}
  pools: [{name: linux, capability: {tags: [docker]}}]
`
	const west = `
cells:
  west: {config: {cells: {name: west}, pools: [{name: far, capability: {tags: [docker]}}]}}
`
	for _, c := range []struct{ story, want string }{
		{base, "there is no cell west"},
		{base + "cells: {west: {config: {pools: [{name: far, capability: {tags: [docker]}}]}}}", "set config.cells.name to west"},
		{base + "cells: {east: {}}", "there is a cell east already"},
		{base + "cells: [west]", "must be stories"},
		{base + west + "cells2: {}", "unknown setting"},
		{base + "cells: {west: {seed: 1, config: {cells: {name: west}, pools: [{name: far, capability: {tags: [docker]}}]}}}", "cells.west.seed: unknown setting"},
		{base + west + "controllers: {nobody: {}}", "unknown setting; there are images"},
		{base + west + "controllers: {images: {instances: 0}}", "use 1 to 16"},
		{base + west + "controllers: {images: {replica: 1}}", "there is no replica 1"},
		{base + west + "controllers: {images: {batch: 257}}", "use at most 256"},
		{base + west + "controllers: {images: {refuses: {jobs: [x]}}}", `there is no job "x"`},
		{base + west + "events: [{at: 1s, controller: {name: images, fault: gone}}]", `there is no controller "images"`},
		{base + west + "controllers: {images: }\nevents: [{at: 1s, controller: {name: images, nth: 1, fault: gone}}]", "nth is 0 to 0"},
		{base + west + "controllers: {images: }\nevents: [{at: 1s, controller: {name: images, fault: slow}}]", "takes goes with slow"},
		{base + west + "events: [{at: 1s, link: {to: north, fault: cut}}]", `"north" is no peer`},
		{base + west + "events: [{at: 1s, link: {to: west, fault: bent}}]", "events[0].link.fault"},
		{base + west + "events: [{at: 1s, offers: {fault: lie}}]", "free goes with lie"},
		{base + west + "events: [{at: 1s, config: {admission: {controllers: [{name: images}, {name: new}]}}}]\ncontrollers: {new: {takes: x}}", "controllers.new.takes"},
		{base + west + "expect: [cell.north.jobs.completed == 1]", "there is no cell north beside this one"},
		{base + west + "expect: [cell.west.pool.linux.launches == 1]", "there is no pool linux; there are far"},
		{base + west + "expect: [handed.north.over == 1]", "there is no peer north"},
		{base + west + "expect: [handed.west.lost == 1]", "a peer has over, ended, back"},
		{base + west + "expect: [job.x.wait == 1]", "there is no job x"},
		{base + west + "expect: [controller.images.asked == 1]", "there is no controller images"},
		{"mode: observe\nconfig: {pools: [{name: p, capability: {tags: [x]}}]}\ncontrollers: {}", "in mode orchestrate only"},
		{"config: {pools: [{name: p, capability: {tags: [x]}}]}\ncells: {west: {}}", "set config.cells.name"},
		{
			"config: {pools: [{name: p, capability: {tags: [x]}}]}\nevents: [{at: 1s, config: {admission: {controllers: [{name: late}]}}}]",
			"the first controller needs a restart",
		},
	} {
		_, err := scenario.Parse("s.yaml", []byte(c.story))
		require.ErrorIs(t, err, config.ErrInvalid, c.story)
		require.ErrorContains(t, err, c.want, c.story)
	}
}
