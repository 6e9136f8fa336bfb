package ec2asg

import (
	"encoding/json"
	"time"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// spotNotice is how long before the end AWS warns of a spot interruption:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
const spotNotice = 2 * time.Minute

// maxIDBytes bounds an instance id: i- and 17 digits, with room.
const maxIDBytes = 64

// notice is what a message says. group is empty where it does not say.
type notice struct {
	group, instance string
	kind            pluginsdk.InterruptionKind
	at              time.Time // when it was sent; zero = not said
	deadline        time.Time // zero = not known
}

// event is an event of EventBridge, or what Auto Scaling itself sends to a hook's
// queue; each has the fields of its own.
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-event-reference.html
type event struct {
	DetailType string    `json:"detail-type"`
	Time       time.Time `json:"time"`
	Detail     struct {
		InstanceID string `json:"instance-id"`
		State      string `json:"state"`
		lifecycleAction
	} `json:"detail"`
	lifecycleAction
	SentAt time.Time `json:"Time"`
}

type lifecycleAction struct {
	Group      string `json:"AutoScalingGroupName"`
	Instance   string `json:"EC2InstanceId"`
	Transition string `json:"LifecycleTransition"`
}

// parseNotice reads a message. ok is false for one that tells of no interruption:
// something else, or nonsense.
func parseNotice(body string) (n notice, ok bool) {
	var e event
	if json.Unmarshal([]byte(body), &e) != nil {
		return n, false
	}
	n = notice{instance: e.Detail.InstanceID, at: e.Time}
	switch e.DetailType {
	case "EC2 Spot Instance Interruption Warning":
		n.kind = pluginsdk.SpotInterruption
		if !e.Time.IsZero() {
			n.deadline = e.Time.Add(spotNotice)
		}
	case "EC2 Instance Rebalance Recommendation":
		n.kind = pluginsdk.Rebalance
	case "EC2 Instance State-change Notification":
		if e.Detail.State == "pending" || e.Detail.State == "running" {
			return n, false
		}
		n.kind = pluginsdk.Terminating
	case "EC2 Instance-terminate Lifecycle Action":
		n.kind = pluginsdk.Terminating
		n.group, n.instance = e.Detail.Group, e.Detail.Instance
	case "":
		if e.Transition != terminating {
			return n, false
		}
		n = notice{group: e.Group, instance: e.Instance, kind: pluginsdk.Terminating, at: e.SentAt}
	default:
		return n, false
	}
	return n, n.instance != "" && len(n.instance) <= maxIDBytes
}
