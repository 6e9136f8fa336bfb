// Command fake is the provider plugin spillway-provider-fake: a cloud in memory,
// for tests, benchmarks and demonstrations of whole processes. The control plane
// starts it; it is of no use by hand.
package main

import (
	"os"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
)

// exitPlanned is the exit status of a death that the configuration asked for.
const exitPlanned = 3

func main() {
	p := fake.New()
	p.Exit = func() { os.Exit(exitPlanned) }
	pluginsdk.Serve(p)
}
