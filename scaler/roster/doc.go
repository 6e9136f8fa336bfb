// Package roster is one pool's book of its instances: which boot, serve, drain
// or are lost, who may be removed, and whether launching works at all.
//
// It is a core. [Roster.Listed] takes what the provider lists, [Roster.Heard]
// what the machines say; [Roster.Census] counts, [Roster.Drain], [Roster.TakeBack],
// [Roster.Removals] choose. An instance is removed on evidence only, looked at
// twice: idle by the router's book and by its own heartbeat, drained,
// acknowledged, and idle again in a heartbeat newer than that.
//
// What leaves for good, by an interruption, its age, its uses or its health, is
// drained and never taken back; it is no capacity from then on, so that what
// replaces it is not waited for. What a terminating hook holds is let go by the same
// evidence as for a removal ([Roster.Releases]). What somebody keeps is chosen by
// nothing. What only its machine speaks of is not the group's ([Roster.Strangers]).
package roster
