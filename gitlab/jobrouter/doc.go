// Package jobrouter is the Job Router that unmodified GitLab Runners (18.9 and later)
// ask for jobs: they find it by [Discovery], reach it over gRPC ([Service]) or through
// a WebSocket ([Tunnel]), and wait in a [Desk] for what GitLab has for their token.
//
// # One poller per token
//
// The desk asks GitLab with the runner's own token and the runner's own words, so that
// GitLab chooses jobs as it always does. Of all replicas one does so for each token, by
// lease; the others pass their runners' questions on to it and take over when the lease
// ends, while the runners' calls stay open.
//
// # Nothing is given twice, nothing is lost
//
// A job that GitLab has handed out stays pending until its runner acknowledges it, so
// GitLab is the arbiter. What is handed out and finds no machine any more (its call
// ended, the machine is to be drained, the booking failed) is kept by telling GitLab
// so, and is offered to the next machine that asks with the same token, or after a while
// to one of another token that takes the same jobs. It is left to GitLab only when it
// can't be kept: GitLab fails such a job after two minutes and
// tries it again as a new one, which it does for a limited number of times.
//
// A job goes to a machine only once it is booked on it, because the scaler removes
// machines whose book is empty. The order to drain a machine and the booking exclude
// each other in the store.
//
// # Whose turn it is
//
// Several tokens may be for the same jobs (route.Tokens.Rivals). GitLab isn't asked for a
// pool while one of higher priority has a machine that waits, or can get one and is to be
// waited for: the desk asks demand.Attribute who would get the jobs ([Queue]), and holds
// the question of the others. It knows of pools at other replicas what they tell each
// other ([Facts]), and the rest by SetRoom and SetQueues. What isn't known holds nobody
// back.
//
// # What a runner is never told
//
// Three answers of the wrong kind in a row make a runner take itself out of service for
// an hour. So it is told OK, with or without a job; Unimplemented, which sends it to
// GitLab itself (a drained replica, a token that isn't ours, a question that can't be
// read, a token that GitLab refuses); or Unavailable by a replica that is going away
// abruptly. Nothing else, whatever happens.
//
// A job's bytes are passed on unchanged, and are neither stored nor logged.
package jobrouter
