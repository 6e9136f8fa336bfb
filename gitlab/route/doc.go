// Package route holds what both ends of route mode share, the job router and the
// front proxy: which pools a runner token serves ([Tokens]), who it is that asks for a
// job ([Caller]), and the registry entries of machines that ask ([Contacts]).
//
// A machine here is a GitLab Runner process that has no stream to us: all that is known
// of it is that it called. So Contacts writes when it was last heard and never that it
// is idle; what proves that is decided in scaler/evidence.
//
// Runner tokens are secrets. They are looked up by their SHA-256, which is also the only
// form in which they appear in a lease, a log or an event.
package route
