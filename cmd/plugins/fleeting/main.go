// Command fleeting is the provider plugin spillway-provider-fleeting, which drives a
// fleeting plugin, made for GitLab Runner. The control plane starts it; it is of no
// use by hand.
package main

import (
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fleeting"
)

func main() { pluginsdk.Serve(fleeting.New()) }
