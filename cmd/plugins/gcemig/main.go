// Command gcemig is the provider plugin spillway-provider-gcemig. The control plane
// starts it; it is of no use by hand.
package main

import (
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/gcemig"
)

func main() { pluginsdk.Serve(gcemig.New()) }
