// Command local is the provider plugin spillway-provider-local. The control plane
// starts it; it is of no use by hand.
package main

import (
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/local"
)

func main() { pluginsdk.Serve(local.New()) }
