// Package access says who may call what. An Identity is what a caller has proven to
// be, by a token or by a client certificate, and the roles that the configuration
// gives to it; Guard finds it for each call and refuses the methods that none of its
// roles allows; Audit keeps what was done by whom.
//
// It knows no store, and holds tokens as hashes only. What runners present is not its
// business: a runner's token says which pool it belongs to (package router/session).
package access
