//go:build race

package sim_test

// underRace: the race detector makes a story ten times as long.
const underRace = true
