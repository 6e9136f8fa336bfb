// Package collect gathers the waiting jobs from their sources into a
// demand.View. In this version the one source is the router's own queue.
package collect
