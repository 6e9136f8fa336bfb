// Package spillway holds the nouns that every other package speaks of:
// [Capability], [Fingerprint], [Requirement], [JobClass], [Job], [Pool] and
// [Signal], with their validation and limits.
//
// It is the innermost core: no clock, no I/O, no goroutine, no logging and no
// import outside the standard library. Decisions about these nouns live
// elsewhere: who may take a job in router, how many instances in
// scaler/policy, which pool a job counts for in demand.
package spillway
