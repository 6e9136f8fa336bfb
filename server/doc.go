// Package server is how a running control plane is asked and watched from
// outside: the administration service, metrics, health, the listeners that serve
// them, and the log.
//
// It shows and decides nothing. What it shows comes through small interfaces as
// values; who serves them owns them. Nothing here knows a script, a variable or a
// token of a job, and what passes through as text (errors, log lines) passes
// config.Redact.
package server
