// Package memstore is what replicas share, in memory, for simulations: the queue
// with its claims and attempts, machines, drains, leases, the pools' memory and
// the ledger. Its methods mean what package store's mean.
//
// It belongs to one goroutine, its clock is given to it, and it fails on demand:
// it can be down, read-only or wiped. Nothing in it is fast or durable.
package memstore
