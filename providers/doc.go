// Package providers is the host's side of the provider plugins: it launches
// them, keeps them running, and stands between what they say and the pools.
//
// A [Host] runs one process per plugin binary and configuration. Each [Plugin]
// is supervised by one goroutine: pinged, restarted with a growing delay when it
// dies or hangs, declared broken when it keeps dying, and never left behind. A
// [Group] is one pool's view of one provider group; [Decorate] fixes what stands
// in front of it: observation, paging, checks, deadline. Reads that a plugin answered
// with throttled or transient are repeated, at most twice, in front of the plugin.
//
// It trusts a plugin with nothing: the binary is hashed and run from a private
// copy, with an environment of its own and without our descriptors, and every
// answer is checked before a pool sees it.
//
// It does not decide how many instances there shall be, and it does not repeat a
// write: its outcome may be unknown, and only who lists first may ask again.
package providers
