// Package migstub is a stand-in for the Google Compute REST API v1 as far as
// managed instance groups need it. [Cloud] is an [net/http.Handler] with a state:
// a resize makes instances that boot, fail, are listed late and are taken back, and
// the clients of Google work on it unmodified, with their endpoint set to it and
// without credentials.
//
// Time is an argument, as in the provider "fake": [Options.Now] says what time it
// is, and what is due happens before anything else when a call or a deed comes.
// A test on sockets uses the wall clock (and [Cloud.Run], if it wants to be told
// things when they happen); a simulation uses its own clock, [Cloud.NextEvent] and
// [Cloud.Transport], and equal seeds and calls give equal answers.
//
// An instance has a name, which it keeps when its group recreates it, and an id,
// which is another one then (unless a fault says that it is not). Every deed takes
// either; Busy is asked by id; a Change has both.
//
// An instance has ended when it begins to stop: its jobs are lost from then on, and
// it counts as live no more, while the API goes on to list it as stopping.
//
// What it will not do: paths, query parameters, body fields and values that the
// discovery document of the API does not have are refused (methods.json is an
// extract of it; a test compares the two), and so are the many methods that have
// nothing to do with instances coming and going. There are no permissions, disks,
// networks or images. An autoscaler can be attached, and does nothing. Rolling
// updates, standby pools, resize requests and per-instance configurations are not
// there. Where Google documents that something fails but not with which words, the
// words here are made up and clients must not depend on them.
package migstub
