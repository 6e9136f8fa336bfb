// Package asgstub is a stateful stand-in for Amazon EC2 Auto Scaling and for the
// parts of EC2, STS, SQS and CloudWatch that go with it.
//
// [Cloud] is an [http.Handler] that speaks the real wire protocols, all on one
// address, so that aws-sdk-go-v2, aws-cli and boto3 work on it unmodified; only
// their endpoint is set to it. It runs on the wall clock, behind a socket, or on a
// clock that is given to it, without one ([Cloud.Client]), where equal seeds and
// calls give equal answers.
//
// Nothing happens in the background: what is due is done when the next call comes,
// in the order of time ([Cloud.Advance], [Cloud.NextEvent]; [Cloud.Run] does it on
// the wall clock). [Faults] says how a group misbehaves; testdata/faults.yaml is an
// example of the file that [ReadFaults] reads, and asgstubd serves one on a port.
//
// It models what a client can see of the service and no more. What it does not
// know it refuses: an unknown operation or parameter is an error and never ignored.
package asgstub
