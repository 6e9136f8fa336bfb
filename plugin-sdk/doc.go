// Package pluginsdk is the contract between Spillway and a provider plugin, and
// what a plugin's author needs to keep it: [Provider], the errors, and [Serve].
//
// A provider turns absolute wishes ("this group shall have 7 instances", "end
// exactly these two") into calls of one cloud. It decides nothing: how many,
// which one and when to try again are the control plane's.
//
// Nobody has to use more than that, but what providers have in common is here too:
// [DecodeConfig] reads the configuration strictly, [Configured] holds what was made
// of it, [GroupNames] and [CheckGroups] keep the limits, [Once] repeats the answer of
// a write that is repeated, [Budget] keeps the calls to the cloud within a rate,
// [KindOfHTTP] and [RetryAfter] classify failures of HTTP APIs, and [Unsupported] is
// the optional half of a provider.
//
// It imports only the generated contract, go-plugin, grpc and the standard
// library, so that a plugin is as small as its cloud's SDK allows.
package pluginsdk
