// Package wire speaks to a fleeting plugin without its .proto files. What a plugin
// of GitLab's fleeting library needs to start (a magic cookie, a protocol version)
// and how its messages look is published nowhere, so that nothing of it is written
// here: a wire profile, a file of the operator's, says it.
//
//   - [Probe] learns the cookie from the environment that a runner gives its plugins.
//   - [Read] asks a plugin that runs for its descriptors, by gRPC server reflection.
//   - [Propose] binds what a fleeting plugin does (Init, Update, Increase, …) to
//     methods and fields, by the method's name and the field's kind. Where two could
//     be meant it stops and says so, and a [Choices] entry decides.
//   - [Profile] is the file with all that.
//   - [Resolve] holds a profile against a plugin's descriptors, and a [Client] makes
//     the calls.
//
// It starts no process: package child does.
package wire
