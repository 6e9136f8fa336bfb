// Package scenario reads stories: which jobs come when, what the cloud is like,
// what goes wrong, and what must be true afterwards.
//
// [Load] is strict. Unknown keys, times that can't be and names of pools or jobs
// that do not exist are all reported at once, each with file and line. The package
// only reads; internal/sim plays what was read and answers the expectations.
package scenario
