// Package redisd starts private Redis servers and speaks to them with the least
// that a Go program can do: one buffer out, a scanner in. That pipe is the limit
// that a full client is compared with.
package redisd
