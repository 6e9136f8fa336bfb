// Package sim plays a scenario on a virtual clock.
//
// The decisions are those of the real cores: router.Engine gives the jobs out,
// demand.Attribute and policy.Decide say how many instances there shall be, and
// scaler's own loop carries it out. Only what surrounds them is simulated: time,
// the cloud, the store (memstore), the streams and the machines at their ends. The
// cloud is providers/fake, or any other [Cloud] that [RunWith] is given: a real
// plugin in front of a stub of its cloud, for one. One goroutine plays it all, so that a
// scenario and its seed give the same output, byte for byte.
//
// In mode orchestrate the jobs wait in the store, and we hand them out. In mode observe
// they wait in a GitLab that gives the oldest to whoever asks first, on whatever machine
// of whatever pool, whatever was attributed to whom; what is known of it comes late: jobs
// and runners by its list, every 10 s or as the configuration says, and by a webhook if
// there is one; what instances do by their sidecars' heartbeats or by scrapes, every 15 s.
// In mode route we let runners ask GitLab, those of the first pools first, and write down
// what they get; demand is still what the list says, less what we have handed on. Which
// of these proofs a pool has says its configuration (observe, gitlab.route.front); a pool
// that says nothing has a sidecar on each instance in mode observe, and a front proxy
// before it in mode route. scaler/watch and scaler/evidence judge them, as in serve.
// There each launch needs a job of its own only as far as is known at its time, so that
// I3 is checked where we hand the jobs out, as is I11; I4 allows for what comes late.
//
// Admission and cells are played with their own cores, too: admission.Engine reviews what
// waits, in front of controllers that think, fall silent, lie and go away; and several
// cells are worlds of their own that share the time, with cells.Outbound and cells.Inbound
// at the ends of links that break and stall.
//
// What the design calls invariants is checked after each step from the simulated
// world itself, not from what the code under test believes of it.
//
// It does not simulate delays of the network and of the store, nor partial
// failures of single calls: those are shown with real processes.
package sim
