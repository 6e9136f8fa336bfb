// Package providertest holds a provider to the contract of
// [pluginsdk.Provider]. It is public: every author runs it, and so does the
// control plane's own test of each provider that comes with it.
//
//	func TestContract(t *testing.T) {
//		providertest.Run(t, func(t *testing.T) providertest.Subject {
//			return providertest.Subject{Provider: New(), Config: []byte(`{}`), Group: "test"}
//		})
//	}
//
// [RunBinary] does the same with a built plugin, over the wire; [Check] is the
// engine below both and needs no testing.T. [RunConfigs] holds Configure and the
// schema to each other; it launches nothing.
//
// It launches and ends real instances in the group that it is given, at most
// Subject.MaxInstances at a time, and refuses a group that isn't empty. It can't
// show that a list is complete, that a write is not repeated, or how a provider
// behaves when its cloud fails: that needs a cloud that fails on demand.
package providertest
