// Package child runs a go-plugin binary that somebody else made, as a program that
// is not trusted more than it has to be: from a private copy whose sum is known, in
// a process group of its own, with no variable of ours but those that are named,
// behind a socket in a private directory, and never longer than this process.
//
// It knows nothing of what the binary serves: it hands out the connection.
package child
