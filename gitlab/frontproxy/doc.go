// Package frontproxy stands in front of GitLab, so that runners may have Spillway as
// their url: everything that they say passes through it, streaming in both directions,
// and is GitLab's to answer. It holds no body in memory beyond small, bounded peeks, makes
// no request twice and remembers no secret.
//
// Five things are more than passed on:
//
//   - POST /api/v4/jobs/request of a machine that is ordered to drain is answered 204. A
//     job that GitLab gives is booked on the machine before the machine gets it; where that
//     can't be done, the job is kept (state=pending) and the machine gets 204. So no job
//     runs that isn't in the book, and none begins after an order.
//   - PUT /api/v4/jobs/:id with a final state that GitLab has accepted strikes the job.
//     Every update of a booked job is a contact of its machine, since a machine that is
//     full doesn't ask for jobs. state=pending is a machine's keep-alive while it prepares
//     a job that it will run: it strikes nothing.
//   - POST /api/v4/runners/verify gets capability_fingerprint into its answer.
//   - DELETE /api/v4/runners/managers ends the contact with that machine.
//   - GET /api/v4/runners/router/discovery is answered by Options.Discovery.
//
// Paths are passed on as they came, so that a GitLab with a relative URL root must have
// the same root here. They are recognised generously (percent-encoding, doubled and
// trailing slashes, dot segments, a .json at the end): taking one too many for a job
// request does no harm, overlooking one would. For the same reason nothing that cleans
// paths, such as http.ServeMux, should stand in front. The server in front needs a
// ReadHeaderTimeout and MaxHeaderBytes; a ReadTimeout or a WriteTimeout would cut long
// transfers and held questions.
package frontproxy
