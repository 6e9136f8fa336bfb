// Package program runs other people's programs with care: from a private copy of the
// file that was checked, in a process group of their own, with nothing of ours but what
// they are handed, and with outputs that are read whatever they say.
//
// The host of provider plugins runs its plugins with it, and the fleeting provider the
// binary that it drives. Both speak go-plugin, whose own runner waits for the end of
// the outputs before it notices the end of the process, and so can be held up by
// something that the program has started.
package program
