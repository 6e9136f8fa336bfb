// Package demand turns waiting jobs into demand per pool.
//
// It is a core: [Attribute] gives each waiting job to one pool by maximum flow,
// [Signals] adds up demand per fingerprint. Where the jobs come from is
// demand/collect's business; how many instances follow is scaler/policy's. Who
// may take a job is router's: it comes in as a [Matcher].
package demand
