// Package tlsfiles is TLS from files that change: a certificate, its key and the
// authorities whose certificates are accepted. Each new connection gets what the files
// hold at that time; connections that exist keep what they began with.
//
// The files may be replaced in any way: by renaming, by swapping a link to their folder,
// by writing into them. Until certificate and key belong together again, and while they
// are worse than what there was (expired, not yet valid), what there was stays in use.
//
// It issues nothing and asks no authority: whatever does that writes files.
package tlsfiles
