// Package controller is what an admission controller written in Go links: it connects
// to control planes, stays connected, and has a function asked about each job.
//
// It decides nothing, keeps nothing over a connection, and says nothing of a job of which
// the function was not heard in time: whoever asked says that the controller is late.
//
// A controller in another language needs the protocol only: see
// proto/spillway/admission/v1.
package controller
