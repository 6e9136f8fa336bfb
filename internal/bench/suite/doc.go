// Package suite is the benchmarks of `make bench`: what Spillway does per tick, per
// job and per call, each beside the limit that its work has and, where there is
// one, beside a peer that does the same work.
//
// Unlike work is never quoted as like: what a subject leaves out stands in its name
// or in a note below its table.
package suite
