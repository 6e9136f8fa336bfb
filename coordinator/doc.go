// Package coordinator serves workers that ask for jobs by single calls, and the people
// who make pools of them (service coordinator.PoolCoordinator).
//
// To the router each worker is a machine with one place: a conversation within this
// process (session.Attached) says for it what it has said, and keeps what the router
// answers until the worker's next call. So there is one queue, one engine and one book of
// attempts for workers and machines alike, and nothing of a job is in this package alone:
// a job that was offered and not fetched goes back, one that was given to a worker is
// also in the store (store.Work), where the next replica that the worker calls finds it.
//
// A registered pool has at most as many workers as it was registered for: each has a seat,
// which the store gives out to all replicas (store.TakeSeat). How many there should be is
// told to whoever starts them.
//
// It decides nothing about which job goes where, starts no instances, and knows no
// worker that does not call.
package coordinator
