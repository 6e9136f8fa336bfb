//go:build !race

package jobrouter

const raceEnabled = false
