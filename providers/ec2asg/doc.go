// Package ec2asg is the provider for AWS Auto Scaling groups.
//
// This version reads: Status and ListInstances are complete, and every write
// answers ErrUnsupported. It can be used for pools in shadow mode, where decisions
// are made, recorded and shown but not carried out.
//
// It needs autoscaling:DescribeAutoScalingGroups and takes credentials from where
// every AWS program takes them: environment, shared files, the role of the
// instance or container. It retries nothing; that is the control plane's.
//
// When instances were launched and whether they are spot is EC2's knowledge, which
// this package does not ask for: both are left at "not known".
package ec2asg
