// Package manual writes manual pages, shell completions and a description of a command
// from the command itself, so that packages and documentation say what --help says.
//
// No program links it: whoever needs them compiles the command once more with a file laid
// over it that calls WriteAndExit or DescribeAndExit, and runs that.
package manual
