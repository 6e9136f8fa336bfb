// Package session carries the links between cells: what package cells decides is said and
// done here.
//
// Origin hands jobs over. To its own router each capability that a peer offers is a pool
// with one machine, which speaks for the peer from within this process; what the router
// gives to that machine goes over the link. Of the replicas of an origin one links to a
// peer, by a lease.
//
// Receiver takes jobs from other cells. It pushes them into its own queue and follows them
// there. Of the replicas of a cell the one that an origin is linked to answers for that
// origin's jobs; when it is gone another one does.
//
// Both keep a book in their own store, and write there before they say anything that
// another cell goes by.
package session
