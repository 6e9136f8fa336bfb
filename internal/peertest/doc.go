// Package peertest finds the programs that nobody here wrote and that tests run
// against: clouds' own command lines, their emulators, other languages.
//
// A part that the machine does not have is a loud skip. A part that it has and
// that does not work is a skip for a person, who may have a broken installation,
// and a failure in CI.
package peertest
