package asgstub

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The states of an activity:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_Activity.html
const (
	statusPreInService = "PreInService"
	statusInProgress   = "InProgress"
	statusMidLifecycle = "MidLifecycleAction"
	statusSuccessful   = "Successful"
	statusFailed       = "Failed"
	statusCancelled    = "Cancelled"
)

const (
	// maxActivities bounds the activities that a group remembers, the newest.
	maxActivities = 10_000
	// activityAge is how long the service shows an activity:
	// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DescribeScalingActivities.html
	activityAge = 6 * 7 * 24 * time.Hour
	// maxStatusMessage is the service's bound on a StatusMessage [characters].
	maxStatusMessage = 255
)

// activity is one entry of a group's history.
type activity struct {
	id          string
	g           *group
	description string
	cause       string
	started     time.Time
	ended       time.Time // zero = it goes on
	status      string
	message     string
	progress    int
	details     string
}

func (g *group) startActivity(description, cause, zone string) *activity {
	a := &activity{
		id: g.uuid(), g: g, description: description, cause: cause, started: g.c.mu.now,
		status: statusInProgress, details: fmt.Sprintf(`{"Availability Zone":%q}`, zone),
	}
	g.activities = append(g.activities, a)
	g.activities = slices.Delete(g.activities, 0, max(0, len(g.activities)-maxActivities))
	return a
}

// finish ends an activity that has not ended yet.
func (c *Cloud) finish(a *activity, status string) {
	if a == nil || !a.ended.IsZero() {
		return
	}
	a.status, a.ended, a.progress = status, c.mu.now, 100
	a.g.lastScaling = c.mu.now
}

// failActivity is a launch that failed: the shape is that of the service's own.
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/CHAP_Troubleshooting.html
func (g *group) failActivity(fault *LaunchFault, cause string) {
	reason := g.launchText(fault)
	a := g.startActivity("Launching a new EC2 instance.  Status Reason: "+reason, cause, g.nextZone())
	g.c.finish(a, statusFailed)
	a.message = reason
	g.c.groupEvent(g, eventLaunchFailed, a)
}

// protectedActivity says that nobody could be chosen; once, not for every call.
func (g *group) protectedActivity() {
	const text = "Could not scale to desired capacity because all remaining instances are protected from scale-in."
	cause := g.why + "  At " + seconds(g.c.mu.now) + " group reached equilibrium."
	if n := len(g.activities); n > 0 && g.activities[n-1].description == text && g.activities[n-1].cause == cause {
		return
	}
	a := g.startActivity(text, cause, g.zones[0])
	g.c.finish(a, statusCancelled)
}

// launchTexts are why a launch failed, by EC2's error code. %[1]s is the instance
// type, %[2]s the zone, %[3]s another zone.
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ts-as-capacity.html and
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ts-as-instancelaunchfailure.html
var launchTexts = map[string]string{
	"InsufficientInstanceCapacity": "We currently do not have sufficient %[1]s capacity in the Availability Zone you requested (%[2]s). Our system will be working on provisioning additional capacity. You can currently get %[1]s capacity by not specifying an Availability Zone in your request or choosing %[3]s.",
	"UnfulfillableCapacity":        "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity due to your request configuration. Please adjust your request and try again.",
	"NoSpotCapacity":               "There is no Spot capacity available that matches your request.",
	"MaxSpotInstanceCountExceeded": "Could not launch Spot Instances. MaxSpotInstanceCountExceeded - Max spot instance count exceeded.",
	"VcpuLimitExceeded":            "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
	"InstanceLimitExceeded":        "You have requested more instances (7) than your current instance limit of 6 allows for the specified instance type. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
	"Unsupported":                  "Your requested instance type (%[1]s) is not supported in your requested Availability Zone (%[2]s). Please retry your request by not specifying an Availability Zone or choosing %[3]s.",
	"InvalidParameter":             "The security group 'sg-0123456789abcdef0' does not exist.",
	"InvalidAMIID.NotFound":        "The image id '[ami-0123456789abcdef0]' does not exist.",
	"InvalidKeyPair.NotFound":      "The key pair 'ci' does not exist.",
	"InvalidLaunchTemplate":        "The specified launch template, with template ID lt-0123456789abcdef0, does not exist.",
}

func (g *group) launchText(fault *LaunchFault) string {
	text := fault.Message
	if text == "" {
		zone := g.nextZone()
		other := g.zones[(slices.Index(g.zones, zone)+1)%len(g.zones)]
		text = launchTexts[fault.Code]
		if strings.Contains(text, "%[") {
			text = fmt.Sprintf(text, g.instanceType(), zone, other)
		}
	}
	const ends = " Launching EC2 instance failed."
	if room := maxStatusMessage - len(ends); len(text) > room {
		text = text[:room]
		if at := strings.LastIndex(text, ". "); at > 0 {
			text = text[:at+1] // whole sentences
		}
	}
	return text + ends
}

// seconds is a time as an activity's cause has it.
func seconds(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
