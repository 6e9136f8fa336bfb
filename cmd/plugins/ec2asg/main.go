// Command ec2asg is the provider plugin spillway-provider-ec2asg. The control plane
// starts it; it is of no use by hand.
package main

import (
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/ec2asg"
)

func main() { pluginsdk.Serve(ec2asg.New()) }
