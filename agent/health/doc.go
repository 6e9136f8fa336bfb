// Package health runs a machine's own check of itself again and again and says when
// the machine is broken, and when it is well again.
//
// It decides nothing about jobs: the router gives none to a broken machine, and the
// scaler replaces its instance.
package health
