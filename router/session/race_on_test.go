//go:build race

package session_test

const underRace = true
