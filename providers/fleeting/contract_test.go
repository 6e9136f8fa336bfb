package fleeting_test

import (
	"os"
	"testing"

	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/fleeting/wire"
)

// What users have: the built plugin in a process of its own, over a stand-in of each
// shape in a process of its own.
func TestContractOverEveryShape(t *testing.T) {
	for name, c := range map[string]struct {
		shape string
		plain bool // no AutoMTLS
		sets  wire.Choices
	}{
		"unary, enum":         {},
		"without AutoMTLS":    {plain: true},
		"stream":              {shape: "stream"},
		"stream, string":      {shape: "stream,string-state"},
		"string":              {shape: "string-state"},
		"map":                 {shape: "map"},
		"struct":              {shape: "struct-config"},
		"minimal":             {shape: "minimal"},
		"unimplemented":       {shape: "unimplemented"},
		"v1alpha":             {shape: "v1alpha"},
		"ambiguous, decided":  {shape: "ambiguous", sets: wire.Choices{"Init.config": "config"}},
		"twins, decided":      {shape: "twins", sets: wire.Choices{"service": "orchard.v1.Nursery"}},
		"vague, decided":      {shape: "vague", sets: wire.Choices{"state.PHASE_GREEN": "running"}},
		"older and heartbeat": {shape: "v1alpha,stream,string-state,unimplemented", plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStandWith(t, c.shape, !c.plain, c.sets)
			s.conf["heartbeat_interval"] = "30ms"
			providertest.RunBinary(t, built.plugin, providertest.Subject{
				Config: s.config(), Group: group, MaxInstances: 4, Settle: within,
			}, "FLEETINGSTAND="+c.shape, "PATH="+os.Getenv("PATH"))
		})
	}
}
