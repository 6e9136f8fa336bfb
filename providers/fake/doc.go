// Package fake is a cloud that exists only in memory.
//
// [Cloud] is one group of it: a pure model on a time that is given to it, seeded
// and repeatable, with the faults that real clouds have. Simulations run on it.
// [Provider] puts several of them behind the plugin contract on the wall clock,
// so that a whole plugin process can be tested without an account anywhere.
//
// It models what a control plane can see of a cloud, and no more: no zones, no
// images, no network. An instance that is removed is gone at once.
package fake
