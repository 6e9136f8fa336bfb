//go:build race

package jobrouter

const raceEnabled = true
