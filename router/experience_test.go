package router

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
)

// experienced is an engine that has seen what a test says.
func experienced() *Engine { return NewEngine(nil, Options{}) }

// sawJob notes how long a job took.
func (e *Engine) sawJob(pool, job string, took time.Duration) {
	m := &machine{Machine: Machine{Pool: pool}, pool: &anyPool}
	e.tastes.took(&hold{name: job, begunAt: time.Unix(0, 1), machine: m}, time.Unix(0, 1).Add(took))
}

var anyPool pool

func TestWhatWasLearnedIsToldOnce(t *testing.T) {
	e := experienced()
	require.True(t, empty(e.Learned()))
	e.sawJob("linux", "test", 8*time.Second)
	e.sawJob("linux", "build", 3*time.Second)
	e.tastes.ran(affinity{project: 7}, "m1")
	e.tastes.ran(affinity{word: "cache"}, "m2")
	e.tastes.ran(affinity{word: "cache"}, "m3")
	require.Equal(t, Experience{
		Durations: []LearnedDuration{{"linux", "build", 3 * time.Second}, {"linux", "test", 8 * time.Second}},
		Warm:      []LearnedWarm{{Word: "cache", Machines: []spillway.MachineID{"m3", "m2"}}, {Project: 7, Machines: []spillway.MachineID{"m1"}}},
	}, e.Learned())
	require.True(t, empty(e.Learned()))
	e.sawJob("linux", "test", 4*time.Second)
	require.Equal(t, Experience{Durations: []LearnedDuration{{"linux", "test", 7 * time.Second}}}, e.Learned(), "the mean goes on")
}

func empty(x Experience) bool { return x.Empty() }

func TestWhatIsHeardIsTakenOverAndNotToldBack(t *testing.T) {
	first, second := experienced(), experienced()
	first.sawJob("linux", "test", 8*time.Second)
	first.tastes.ran(affinity{project: 7}, "m1")
	second.Learn(first.Learned())
	require.True(t, empty(second.Learned()))
	mean, known := second.tastes.durations.get(history{"linux", "test"})
	require.True(t, known)
	require.InDelta(t, 8, mean, 1e-9)
	warm, _ := second.tastes.warm.get(affinity{project: 7})
	require.Equal(t, []spillway.MachineID{"m1"}, warm)

	second.sawJob("linux", "test", 4*time.Second)
	second.tastes.ran(affinity{project: 7}, "m2")
	first.Learn(second.Learned())
	mean, _ = first.tastes.durations.get(history{"linux", "test"})
	require.InDelta(t, 7, mean, 1e-9, "one mean goes on over both")
	warm, _ = first.tastes.warm.get(affinity{project: 7})
	require.Equal(t, []spillway.MachineID{"m2", "m1"}, warm)
}

func TestWhatBothHaveJustLearnedCountsTwice(t *testing.T) {
	e := experienced()
	e.sawJob("linux", "test", 8*time.Second)
	e.tastes.ran(affinity{project: 7}, "m1")
	e.Learn(Experience{
		Durations: []LearnedDuration{{"linux", "test", 4 * time.Second}},
		Warm:      []LearnedWarm{{Project: 7, Machines: []spillway.MachineID{"m2", "m1", "m3", "m4", "m5"}}},
	})
	require.Equal(t, Experience{
		Durations: []LearnedDuration{{"linux", "test", 6 * time.Second}},
		Warm:      []LearnedWarm{{Project: 7, Machines: []spillway.MachineID{"m1", "m2", "m3", "m4"}}},
	}, e.Learned())
}

func TestExperienceIsBounded(t *testing.T) {
	e := experienced()
	for i := range maxHistories + 10 {
		e.sawJob("linux", fmt.Sprint("job-", i), time.Second)
		e.tastes.ran(affinity{project: int64(i + 1)}, "m")
	}
	x := e.Learned()
	require.Len(t, x.Durations, MaxExperience)
	require.Len(t, x.Warm, MaxExperience)
	require.Equal(t, fmt.Sprint("job-", maxHistories+9), x.Durations[0].Job, "the latest")
	require.True(t, empty(e.Learned()), "the rest is told when it is learned anew")

	heard := Experience{}
	for i := range 2 * maxHistories {
		heard.Durations = append(heard.Durations, LearnedDuration{"mac", fmt.Sprint("job-", i), time.Second})
	}
	e.Learn(heard)
	require.Len(t, e.tastes.durations.byKey, maxHistories)
	_, known := e.tastes.durations.get(history{"mac", "job-0"})
	require.True(t, known, "the latest of what was heard")
}
