package asgstub

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// The detail types of the events that the stand-in sends:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-event-reference.html
const (
	EventInterruption        = "EC2 Spot Instance Interruption Warning"
	EventRebalance           = "EC2 Instance Rebalance Recommendation"
	EventState               = "EC2 Instance State-change Notification"
	EventLaunchAction        = "EC2 Instance-launch Lifecycle Action"
	EventTerminateAction     = "EC2 Instance-terminate Lifecycle Action"
	EventLaunchSuccessful    = "EC2 Instance Launch Successful"
	EventLaunchUnsuccessful  = "EC2 Instance Launch Unsuccessful"
	EventTerminateSuccessful = "EC2 Instance Terminate Successful"
)

var allEvents = []string{
	EventInterruption, EventRebalance, EventState, EventLaunchAction, EventTerminateAction,
	EventLaunchSuccessful, EventLaunchUnsuccessful, EventTerminateSuccessful,
}

const (
	eventInterruption = EventInterruption
	eventRebalance    = EventRebalance
	eventState        = EventState
	eventLaunched     = EventLaunchSuccessful
	eventLaunchFailed = EventLaunchUnsuccessful
	eventTerminated   = EventTerminateSuccessful
)

// envelope is an event as EventBridge puts it into a queue:
// https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html
type envelope struct {
	Version    string   `json:"version"`
	ID         string   `json:"id"`
	DetailType string   `json:"detail-type"`
	Source     string   `json:"source"`
	Account    string   `json:"account"`
	Time       string   `json:"time"`
	Region     string   `json:"region"`
	Resources  []string `json:"resources"`
	Detail     any      `json:"detail"`
}

// event sends an event about an instance.
func (c *Cloud) event(in *instance, kind string) {
	arn := "arn:aws:ec2:" + c.region() + ":" + c.opts.AccountID + ":instance/" + in.id
	switch kind {
	case EventInterruption:
		c.publish(kind, "aws.ec2", []string{"arn:aws:ec2:" + in.zone + ":instance/" + in.id},
			map[string]string{"instance-id": in.id, "instance-action": "terminate"})
	case EventRebalance:
		c.publish(kind, "aws.ec2", []string{"arn:aws:ec2:" + in.zone + ":instance/" + in.id},
			map[string]string{"instance-id": in.id})
	case EventState:
		c.publish(kind, "aws.ec2", []string{arn}, map[string]string{"instance-id": in.id, "state": in.ec2})
	default:
		c.publish(kind, "aws.autoscaling", []string{in.g.arn, arn}, in.g.activityDetail(in.work, in.id))
	}
}

// groupEvent sends an event about an activity without an instance.
func (c *Cloud) groupEvent(g *group, kind string, a *activity) {
	c.publish(kind, "aws.autoscaling", []string{g.arn}, g.activityDetail(a, ""))
}

func (g *group) activityDetail(a *activity, id string) map[string]string {
	d := map[string]string{"AutoScalingGroupName": g.name, "EC2InstanceId": id}
	if a != nil {
		d["ActivityId"], d["Description"], d["Cause"] = a.id, a.description, a.cause
		d["StatusCode"], d["StatusMessage"] = a.status, a.message
		d["StartTime"], d["EndTime"] = millis(a.started), millis(a.ended)
	}
	return d
}

func (c *Cloud) publish(kind, source string, resources []string, detail any) {
	var body []byte
	for _, name := range c.queueNames() {
		q := c.mu.queues[name]
		if !slices.Contains(q.events, kind) {
			continue
		}
		if body == nil {
			var err error
			body, err = json.Marshal(envelope{
				Version: "0", ID: uuid(c.mu.rng), DetailType: kind, Source: source, Account: c.opts.AccountID,
				Time: seconds(c.mu.now), Region: c.region(), Resources: resources, Detail: detail,
			})
			must(err)
		}
		c.send(q, string(body), 0)
	}
}

func (c *Cloud) queueNames() []string {
	names := make([]string, 0, len(c.mu.queues))
	for name := range c.mu.queues {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// hookEvent tells that an instance waits for a hook: to EventBridge, and to the
// queue that the hook names.
func (c *Cloud) hookEvent(in *instance, w *wait) {
	kind, origin, destination := EventTerminateAction, "AutoScalingGroup", "EC2"
	if w.hook.Transition == Launching {
		kind, origin, destination = EventLaunchAction, "EC2", "AutoScalingGroup"
	}
	detail := map[string]string{
		"LifecycleActionToken": w.token, "AutoScalingGroupName": in.g.name, "LifecycleHookName": w.hook.Name,
		"EC2InstanceId": in.id, "LifecycleTransition": w.hook.Transition, "Origin": origin, "Destination": destination,
	}
	if w.hook.NotificationMetadata != "" {
		detail["NotificationMetadata"] = w.hook.NotificationMetadata
	}
	c.publish(kind, "aws.autoscaling", []string{in.g.arn}, detail)
	if q := c.mu.queues[arnName(w.hook.NotificationTargetARN)]; q != nil {
		detail["Service"], detail["Time"] = "AWS Auto Scaling", millis(c.mu.now)
		detail["AccountId"], detail["RequestId"] = c.opts.AccountID, uuid(c.mu.rng)
		body, err := json.Marshal(detail)
		must(err)
		c.send(q, string(body), 0)
	}
}

// arnName is the last part of an ARN.
func arnName(arn string) string { return arn[strings.LastIndexByte(arn, ':')+1:] }

// millis is a time as the services write it.
func millis(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
