//go:build !race

package simcloud_test

// underRace: each story is played by one goroutine, so that the race detector needs
// not see them all; it makes them many times slower.
const underRace = false
