// Package ec2asg is the provider for AWS Auto Scaling groups.
//
// # What it does and never does
//
// It raises a group's desired capacity, ends instances by name, takes back what was
// asked for and never filled, keeps instances alive that a lifecycle hook holds until
// their jobs have ended, and tells of spot interruptions and of settings that work
// against all this. It never lowers desired while an instance could be chosen for it,
// never lifts scale-in protection, never touches a group or instance that its group
// does not list, never changes a group's settings and never calls EC2's own
// TerminateInstances. It repeats no call: that is the control plane's to decide.
//
// # Numbers
//
// Desired, min and max count instances. Groups that weight their instances, or count
// vCPUs or memory, are refused. A mixed instances policy with weights of 1 or none is
// fine: spot and on-demand instances are told apart, and the group picks the types.
//
// A warm pool is outside of the numbers: its instances wait, stopped or running, and
// are not counted by desired and not listed here, though AWS bills them. A launch out
// of it is only a faster launch. Where the pool takes instances back on scale-in, one
// that is removed goes there instead of ending; it is not listed any more all the same.
//
// Standby instances are not listed: they bill, but somebody has taken them out of
// service and of desired, and they are never removed. Instances that are terminating, detached or
// retained after termination are no part of desired either.
//
// # What it costs
//
// A look at F groups is ⌈F/100⌉ calls of DescribeAutoScalingGroups, whoever asks and
// however often within a second: where a call has room, the groups whose look is the
// oldest are read along. Beside it, in this order and for five seconds at
// most: heartbeats that are due, at most 50; DescribeScalingActivities for groups from
// which something is missing, at most 20; and DescribeInstances for instances that are
// new, 200 a call, and every 5 minutes for their tags. Each write is one call, and one
// read for up to a hundred groups that wait for their turn if the last look is older
// than a second. With api_rate all of it together is paced, 5 % below what it says, so
// that no call is refused; notices are not, they have a service of their own. While
// writes wait for their turn, looks leave together once a second and are content with
// what was read within five; and what is beside them, but for heartbeats, is left out
// for 30 seconds at most.
//
// # Rights
//
// For reading (these can't be restricted to a resource):
//
//	autoscaling:DescribeAutoScalingGroups     always
//	autoscaling:DescribeScalingActivities     failed launches: without it only noticed by their absence
//	autoscaling:DescribeLifecycleHooks        hooks
//	autoscaling:DescribeAutoScalingInstances  notices about instances that are new
//	autoscaling:DescribePolicies              findings
//	autoscaling:DescribeInstanceRefreshes     findings
//	ec2:DescribeInstances                     launch times, spot, the tag spillway-keep
//	cloudwatch:GetMetricData                  metrics
//
// For writing, on the groups' ARNs, with the condition
// "StringEquals": {"autoscaling:ResourceTag/spillway-owner": "<the setting owner>"}:
//
//	autoscaling:SetDesiredCapacity                   launches, withdrawals
//	autoscaling:TerminateInstanceInAutoScalingGroup  removals
//	autoscaling:SetInstanceProtection                protection
//	autoscaling:SetInstanceHealth                    reports of broken instances
//	autoscaling:CompleteLifecycleAction              hooks
//	autoscaling:RecordLifecycleActionHeartbeat       hooks
//
// For notices, on the queue's ARN: sqs:ReceiveMessage, sqs:DeleteMessage, and
// sqs:GetQueueUrl if notices_queue is a name.
//
// No other right is needed. Above all not autoscaling:UpdateAutoScalingGroup,
// ec2:TerminateInstances, ec2:RunInstances or iam:PassRole: who takes this plugin's
// credentials can make groups smaller or larger within their bounds, and no more.
//
// Credentials come from where every AWS program takes them: environment, shared files
// (a profile may assume a role), the role of the instance or container.
//
// # Tags
//
// spillway-owner on a group names the control plane that it belongs to. A group with
// another value than the setting owner is read and never written to. spillway-keep on
// an instance, with any value, means that it is neither removed nor reported broken;
// where EC2 may not be asked it means nothing, which is a finding.
//
// # Notices
//
// notices_queue gets these events by a rule of EventBridge: EC2 Spot Instance
// Interruption Warning, EC2 Instance Rebalance Recommendation, EC2 Instance-terminate
// Lifecycle Action, EC2 Instance State-change Notification; a hook may also send to it
// directly. One queue is for one control plane: a message about a group of somebody
// else is left in it, and deleted once it is 15 minutes old.
package ec2asg
