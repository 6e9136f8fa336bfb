// Package fleeting is the provider that drives a fleeting plugin: a binary made for
// another program, GitLab Runner, which grows and shrinks one group of instances.
// Package wire knows how to speak to it, package child how to run it.
//
// A fleeting plugin has no desired number. It takes "n more" and "end these", and
// lists what there is. Desired is therefore kept here: instances that are listed as
// creating, running or in a state that nobody knows, and those that Increase
// accepted and no list has shown yet, up to fill_timeout. What is deleting, deleted
// or timed out is never counted. An instance that the plugin no longer lists counts
// until it was missing from five lists in a row.
//
// # Where the contract can't be kept
//
//   - SetDesired never lowers the number: only Remove does. It is ErrInvalid.
//   - Expected is held against what is known here; a second writer of the same group
//     is not seen in time. No group is ever shared with a runner that drives it too.
//   - What Increase accepted and no list has shown yet is forgotten with the process
//     of this provider (not with the fleeting plugin's): a restart within these
//     moments can launch as many again. They are listed then, and removed when idle.
//   - An Increase without an answer counts as accepted for a minute.
//   - Every error of a fleeting plugin is one text. It is ErrTransient, whatever the
//     text says: which of them means quota or capacity can't be known.
//   - LaunchedAt is when an instance was first listed; not known for those that were
//     there before.
//   - Withdraw, Protect, Watch and the hooks are ErrUnsupported.
//
// The provider has no timers: a list is refreshed, and a plugin that died is started
// again, by the next call that needs it.
package fleeting
