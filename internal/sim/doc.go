// Package sim plays a scenario on a virtual clock.
//
// The decisions are those of the real cores: router.Engine gives the jobs out,
// demand.Attribute and policy.Decide say how many instances there shall be, and
// scaler's own loop carries it out. Only what surrounds them is simulated: time,
// the cloud, the store (memstore), the streams and the machines at their ends. The
// cloud is providers/fake, or any other [Cloud] that [RunWith] is given: a real
// plugin in front of a stub of its cloud, for one. One goroutine plays it all, so that a scenario and its seed give
// the same output, byte for byte.
//
// What the design calls invariants is checked after each step from the simulated
// world itself, not from what the code under test believes of it.
//
// It does not simulate delays of the network and of the store, nor partial
// failures of single calls: those are shown with real processes.
package sim
