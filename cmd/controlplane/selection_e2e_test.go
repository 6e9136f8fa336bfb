package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// choice is what `explain-job` says.
type choice struct {
	Summary string `json:"summary"`
	Pools   []struct {
		Pool     string           `json:"pool"`
		Outcome  string           `json:"outcome"`
		Detail   string           `json:"detail"`
		Machines []map[string]any `json:"machines"`
	} `json:"pools"`
}

func (r *replica) choice(id string) (c choice) {
	r.t.Helper()
	require.NoError(r.t, json.Unmarshal([]byte(r.must("explain-job", id, "-o", "json")), &c))
	return c
}

// score is what speaks against a machine by one criterion.
func (c choice) score(t *testing.T, machine, criterion string) float64 {
	t.Helper()
	for _, p := range c.Pools {
		for _, m := range p.Machines {
			if m["machine_id"] == machine {
				x, _ := m[criterion].(float64) // 0 is left out
				return x
			}
		}
	}
	require.FailNow(t, "machine not compared", "%s: %+v", machine, c)
	return 0
}

// went runs a job to its end and returns the machine that it was on.
func (r *replica) went(j job) string {
	r.t.Helper()
	r.submit(j)
	id, _ := j["id"].(string)
	return r.await(id, "completed").Machine
}

// A18: which of several free places a job gets, and that it can be told why.
func TestA18_TheBestOfSeveralPlacesAndWhy(t *testing.T) {
	t.Parallel()
	shows(t, "A18")
	s := newSteadyStand(t, "router: {weights: {cost: 0.1, history: 1, affinity: 0.2, anti_affinity: 4, topology: 0.05}}\n",
		handPool{"cheap", "cost_per_job: 1, " + linuxPool}, handPool{"dear", "cost_per_job: 5, " + linuxPool},
		handPool{"big", "cost_per_job: 9, capability: {tags: [linux], resources: {milli_cpu: 4000, memory_mib: 8192, features: [docker]}}"},
		handPool{"sealed", "capability: {tags: [linux], protected: true}"})
	for pool, id := range map[string]string{"cheap": "c1", "dear": "d1", "big": "b1", "sealed": "s1"} {
		s.machine("a", pool, id, "--label", "zone="+id, "--label", "distance="+map[string]string{"dear": "9"}[pool]+"1")
	}
	r := s.a()

	// What it needs, and where it may run.
	require.Equal(t, "b1", r.went(job{"id": "memory", "script": "true", "resources": map[string]any{"memory_mib": 4096, "features": []string{"docker"}}}))
	require.Equal(t, "s1", r.went(job{"id": "protected", "script": "true", "protected": true, "tags": []string{"linux"}, "priority": 0}))
	out := r.outcomes("memory")
	require.Equal(t, []string{"no_match", "no_match", "free"}, []string{out["cheap"], out["dear"], out["big"]})
	s.b().submit(job{"id": "huge", "script": "true", "resources": map[string]any{"memory_mib": 1 << 20}})
	require.Contains(t, r.must("why-not", "huge"), "memory")

	// What it costs; and what it cost before is known of the place that it was on.
	require.Equal(t, "c1", r.went(job{"id": "cost", "script": "true", "project": 1}))
	c := r.choice("cost")
	require.Greater(t, c.score(t, "d1", "cost"), c.score(t, "c1", "cost"))
	require.Greater(t, c.score(t, "d1", "topology"), c.score(t, "c1", "topology"), "it is farther, and in another zone")

	// How long the same took there: both have run it, and the dear one was faster.
	script, gate := scriptGate(t)
	r.submit(job{"id": "first", "name": "build", "script": script, "anti_affinity": "alone"})
	require.Equal(t, "c1", r.await("first", "running").Machine)
	began := time.Now()
	require.Equal(t, "d1", r.went(job{"id": "second", "name": "build", "script": "true"}))
	took := time.Since(began)
	require.Equal(t, "d1", r.went(job{"id": "apart", "script": "true", "anti_affinity": "alone"}), "not beside the other one")
	require.Eventually(t, func() bool { return time.Since(began) > 3*took }, within, poll)
	open(t, gate)
	r.await("first", "completed")
	require.Equal(t, "d1", r.went(job{"id": "third", "name": "build", "script": "true"}))
	c = r.choice("third")
	require.Greater(t, c.score(t, "c1", "history"), c.score(t, "d1", "history"))
	require.Less(t, c.score(t, "d1", "sum"), c.score(t, "c1", "sum"))

	// What is warm there.
	require.Equal(t, "c1", r.went(job{"id": "cold", "script": "true", "affinity": "gems"}))
	script, gate = scriptGate(t)
	r.submit(job{"id": "fills-2", "script": script})
	require.Equal(t, "c1", r.await("fills-2", "running").Machine)
	require.Equal(t, "d1", r.went(job{"id": "warms", "script": "true", "affinity": "crates"}))
	open(t, gate)
	r.await("fills-2", "completed")
	require.Equal(t, "d1", r.went(job{"id": "warm", "script": "true", "affinity": "crates"}), "though it is dearer")
	require.Contains(t, r.must("explain-job", "warm"), "AFFINITY")
}

// A18: whose job goes first: the jobs' priority, then the project with the fewest running
// ones, and in pools of a group the oldest.
func TestA18_WhoseJobGoesFirst(t *testing.T) {
	t.Parallel()
	shows(t, "A18")
	s := newSteadyStand(t, "", handPool{"shared", "capacity_per_instance: 2, " + linuxPool}, handPool{"team", "capability: {tags: [team], type: group, groups: [3]}"})
	s.machine("a", "shared", "m1", "--capacity", "2")
	s.machine("a", "team", "m2")
	folder := t.TempDir()
	// turn runs jobs while others hold all places, one of which becomes free then, and
	// returns the order in which they began.
	turn := func(diary string, hold []job, jobs ...job) string {
		t.Helper()
		diary = filepath.Join(folder, diary)
		script, gate := scriptGate(t)
		for i := range hold {
			hold[i]["script"] = map[bool]string{true: script, false: "sleep 1000"}[i == 0]
			s.b().submit(hold[i])
			s.b().await(hold[i]["id"].(string), "running")
		}
		for _, j := range jobs {
			j["script"] = "echo " + j["id"].(string) + " >>" + diary
			s.b().submit(j)
		}
		open(t, gate)
		for _, j := range jobs {
			s.b().await(j["id"].(string), "completed")
		}
		for _, h := range hold[1:] {
			s.b().must("jobs", "cancel", h["id"].(string))
			s.b().await(h["id"].(string), "canceled")
		}
		text, err := os.ReadFile(diary)
		require.NoError(t, err)
		return strings.Join(strings.Fields(string(text)), " ")
	}
	of := func(project int, id string) job { return job{"id": id, "project": project} }
	urgent := of(4, "urgent")
	urgent["priority"] = 0
	late := func(j job) job { j["priority"] = 5; return j }

	// Project 1 has a job running all the time, and was first with many more.
	require.Equal(t, "urgent 2a 2b 1a 1b", turn("fair", []job{of(3, "h1"), of(1, "h2")},
		late(of(1, "1a")), late(of(1, "1b")), late(of(2, "2a")), late(of(2, "2b")), urgent))

	group := func(project int, id string) job {
		return job{"id": id, "project": project, "groups": []int{3}, "tags": []string{"team"}}
	}
	require.Equal(t, "3a 3b 4a", turn("fifo", []job{group(3, "h3")}, group(3, "3a"), group(3, "3b"), group(4, "4a")))
}
