package ec2asg

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// reason is a part of an activity's StatusMessage and what it means. The message is
// for people and not a contract of AWS: what matches nothing is transient, which
// cools the pool off and is tried again.
type reason struct {
	part string // in lower case
	kind pluginsdk.Kind
}

// reasons are looked through in order: codes before sentences, and the narrow before
// the wide. Where they come from:
//
//   - the codes: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
//     (mixed instances groups name them: "Could not launch Spot Instances.
//     InsufficientInstanceCapacity - …")
//   - the sentences: https://docs.aws.amazon.com/autoscaling/ec2/userguide/CHAP_Troubleshooting.html,
//     pages ts-as-capacity and ts-as-instancelaunchfailure, and messages as they are
//     quoted in public issues: kubernetes/autoscaler#1263 and #3241,
//     aws/aws-parallelcluster#1115, kubernetes/kops#11545
var reasons = []reason{
	{"insufficientinstancecapacity", pluginsdk.KindCapacity},
	{"insufficienthostcapacity", pluginsdk.KindCapacity},
	{"insufficientreservedinstancecapacity", pluginsdk.KindCapacity},
	{"insufficientcapacity", pluginsdk.KindCapacity},
	{"unfulfillablecapacity", pluginsdk.KindCapacity},
	{"spotmaxpricetoolow", pluginsdk.KindCapacity}, // the market is above what is offered: none is to be had
	{"maxspotinstancecountexceeded", pluginsdk.KindQuota},
	{"vcpulimitexceeded", pluginsdk.KindQuota},
	{"instancelimitexceeded", pluginsdk.KindQuota},
	{"volumelimitexceeded", pluginsdk.KindQuota},
	{"maxiopslimitexceeded", pluginsdk.KindQuota},
	{"insufficientfreeaddressesinsubnet", pluginsdk.KindQuota}, // of the subnet, not of the cloud
	{"requestlimitexceeded", pluginsdk.KindThrottled},
	{"unauthorizedoperation", pluginsdk.KindAuth},
	{"authfailure", pluginsdk.KindAuth},
	{"client.internalerror", pluginsdk.KindInvalid}, // the volume's key may not be used: the key policy must be changed
	{"client.uservolumelimitexceeded", pluginsdk.KindQuota},
	{"invalidparameter", pluginsdk.KindInvalid},
	{"unsupported", pluginsdk.KindInvalid},
	{"server.", pluginsdk.KindTransient}, // Server.InternalError, Server.ScheduledStop …

	{"do not have sufficient", pluginsdk.KindCapacity}, // "We currently do not have sufficient m5.large capacity in the Availability Zone you requested"
	{"no spot capacity available", pluginsdk.KindCapacity},
	{"max spot instance count exceeded", pluginsdk.KindQuota},
	{"than your current instance limit", pluginsdk.KindQuota}, // "You have requested more instances (7) than your current instance limit of 6 allows"
	{"than your current vcpu limit", pluginsdk.KindQuota},
	{"not enough free addresses", pluginsdk.KindQuota},
	{"request limit exceeded", pluginsdk.KindThrottled},
	{"not authorized", pluginsdk.KindAuth},
	{"does not exist", pluginsdk.KindInvalid}, // a key pair, a security group, an image
	{"is not supported", pluginsdk.KindInvalid},
	{"currently not supported", pluginsdk.KindInvalid},
	{"launch template", pluginsdk.KindInvalid},
	{"launch configuration", pluginsdk.KindInvalid},
	{"no longer supported", pluginsdk.KindInvalid},
	{"invalid", pluginsdk.KindInvalid},
}

// failureOf is what a failed activity tells; ok is false for an activity that is no
// failed launch.
func failureOf(a *types.Activity) (f pluginsdk.GroupFailure, ok bool) {
	failed := a.StatusCode == types.ScalingActivityStatusCodeFailed || a.StatusCode == types.ScalingActivityStatusCodeCancelled
	if !failed || aws.ToString(a.ActivityId) == "" || !isLaunch(aws.ToString(a.Description)) {
		return f, false
	}
	message := aws.ToString(a.StatusMessage)
	if message == "" {
		message = aws.ToString(a.Description)
	}
	at := aws.ToTime(a.EndTime)
	if at.IsZero() {
		at = aws.ToTime(a.StartTime)
	}
	return pluginsdk.GroupFailure{ID: aws.ToString(a.ActivityId), Kind: kindOfMessage(message), Message: message, At: at}, true
}

// isLaunch tells launches from terminations, which can fail too. AWS writes
// "Launching a new EC2 instance" and, for older spot groups, "Placing Spot instance
// request"; of something else it is not known what it says of capacity.
func isLaunch(description string) bool {
	return description == "" || strings.HasPrefix(description, "Launching") || strings.HasPrefix(description, "Placing")
}

func kindOfMessage(message string) pluginsdk.Kind {
	message = strings.ToLower(message)
	for _, r := range reasons {
		if strings.Contains(message, r.part) {
			return r.kind
		}
	}
	return pluginsdk.KindTransient
}
