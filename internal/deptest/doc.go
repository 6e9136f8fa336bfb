// Package deptest holds the rules about who may import what, and what a core may
// not do, as tests. It has no code of its own: see its tests, whose failure texts
// give the reason for each rule.
package deptest
