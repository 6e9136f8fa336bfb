// Command fleetingstand is a stand-in for a fleeting plugin: a go-plugin gRPC server
// that does what the fleeting library's Go interface says, for the tests of what
// drives such plugins. Its cookie, versions, services, messages and fields are of
// our own invention: they say nothing of how a plugin of GitLab's looks.
//
// Its shape is in the variable FLEETINGSTAND, a list such as "stream,string-state":
//
//	stream        Update answers one instance after the other
//	map           Update answers a map
//	string-state  states are strings, not an enum
//	struct-config plugin_config travels as a google.protobuf.Struct within a message
//	minimal       there is no Heartbeat and no Shutdown
//	unimplemented there are, and they are unimplemented
//	v1alpha       only the older version of reflection is there
//	mute          no reflection at all
//	ambiguous     two fields could take plugin_config
//	vague         no state says that it is running
//	twins         two services could be the one
//
// Its cloud is the file that plugin_config names (see [cloud]), so that instances
// outlive it, and tests can look, meddle and make calls fail.
package main
