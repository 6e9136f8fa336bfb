// Package notices hears from the machine's own cloud what will happen to the
// instance that it runs on: that it is taken back, that it may be, that its host is
// maintained, that its group is ending it.
//
// It asks the metadata service on the link-local address, which nobody but this
// instance can answer for and which needs no credentials. On AWS that is the
// instance metadata service in version 2; version 1, which answers whoever gets a
// process here to fetch a URL, is never spoken. On Google Compute Engine it is the
// metadata server, whose answers are only believed with its header.
//
// A [Watcher] says what it heard as a [Notice]; what to do about it is the
// business of who listens. Nothing that was heard is taken back.
package notices
