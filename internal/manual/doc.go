// Package manual writes the manual pages and shell completions of a command from
// the command itself, so that packages carry what --help says.
//
// No program links it: a release compiles each command once more with a file laid
// over it that calls WriteAndExit, and runs that.
package manual
