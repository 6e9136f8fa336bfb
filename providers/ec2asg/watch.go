package ec2asg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// longPoll is how long one call waits for messages, and messagesPerCall how many it
	// takes: the most that SQS allows.
	// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
	longPoll        = 20 * time.Second
	messagesPerCall = 10
	// hideFor is how long a message is hidden from others while we look at it. One that
	// is somebody else's comes back for them after it: a spot notice is 2 minutes.
	hideFor = 10 * time.Second
	// noticeLife is how old a notice may be that nobody has taken. Then it is of no use
	// to anybody, and would go round for days.
	noticeLife = 15 * time.Minute
	// strangerLife is how old a notice may be about an instance that is in no Auto
	// Scaling group at all; a new one takes a moment to be seen in its own.
	strangerLife = time.Minute
	// watchPause is the least and watchMaxPause the longest time between two tries.
	watchPause    = time.Second
	watchMaxPause = time.Minute
	// sayEvery is the least time between two lines about messages that are thrown away.
	sayEvery = 10 * time.Minute
)

// Watch implements pluginsdk.Provider: it takes notices from the queue until ctx
// ends, through failures. A message is deleted when it was delivered or is nothing
// that anybody could use; one about a group that is not among groups is left for
// whoever asks for that.
func (p *Provider) Watch(ctx context.Context, groups []string, notify func(pluginsdk.Interruption)) error {
	if err := pluginsdk.CheckGroups(groups); err != nil {
		return err
	}
	s, err := p.configured.Get()
	if err != nil {
		return err
	}
	if s.config.NoticesQueue == "" {
		return pluginsdk.Errorf(pluginsdk.KindUnsupported, "no notices_queue is configured")
	}
	w := &watch{session: s, groups: map[string]bool{}, notify: notify}
	for _, name := range groups {
		w.groups[name] = s.groups[name]
	}
	for ctx.Err() == nil {
		switch err := w.once(ctx); {
		case err == nil:
			w.failures = 0
		case ctx.Err() == nil:
			w.trouble(ctx, err)
		}
	}
	return nil
}

// watch is one Watch. It belongs to the goroutine that called it.
type watch struct {
	*session
	groups   map[string]bool
	notify   func(pluginsdk.Interruption)
	url      string // of the queue; empty = not known yet
	failures int    // in a row
	useless  int    // messages thrown away
	said     time.Time
}

// once receives once, and deals with what came.
func (w *watch) once(ctx context.Context) error {
	if err := w.findQueue(ctx); err != nil {
		return err
	}
	out, err := sendNow(ctx, w.session, w.queue.ReceiveMessage, &sqs.ReceiveMessageInput{
		QueueUrl: aws.String(w.url), MaxNumberOfMessages: messagesPerCall,
		WaitTimeSeconds: int32(longPoll / time.Second), VisibilityTimeout: int32(hideFor / time.Second),
	})
	if err != nil {
		return err
	}
	notices, done, err := w.read(ctx, out.Messages)
	for _, n := range notices {
		w.notify(n)
	}
	return errors.Join(err, w.delete(ctx, done))
}

func (w *watch) findQueue(ctx context.Context) error {
	switch {
	case w.url != "":
	case strings.Contains(w.config.NoticesQueue, "://"):
		w.url = w.config.NoticesQueue
	default:
		out, err := sendNow(ctx, w.session, w.queue.GetQueueUrl, &sqs.GetQueueUrlInput{QueueName: aws.String(w.config.NoticesQueue)})
		if err != nil {
			return err
		}
		w.url = aws.ToString(out.QueueUrl)
	}
	return nil
}

// read sorts messages: notices to deliver, and messages to delete. What could not be
// sorted for an error comes again.
func (w *watch) read(ctx context.Context, messages []sqstypes.Message) (notices []pluginsdk.Interruption, done []sqstypes.Message, err error) {
	parsed := make([]notice, len(messages))
	var strangers []string
	for i := range messages {
		n, ok := parseNotice(aws.ToString(messages[i].Body))
		if !ok {
			w.throwAway()
			done = append(done, messages[i])
			continue
		}
		if parsed[i] = n; n.group == "" && w.homes.of(n.instance) == "" {
			strangers = append(strangers, n.instance)
		}
	}
	err = w.findHomes(ctx, strangers)
	for i, n := range parsed {
		if n.instance == "" {
			continue
		}
		if n.group == "" {
			n.group = w.homes.of(n.instance)
		}
		age := w.now().Sub(n.at)
		switch {
		case w.groups[n.group]:
			done = append(done, messages[i])
			if !w.ended.has(n.instance) { // we know: we did it
				notices = append(notices, pluginsdk.Interruption{Group: n.group, InstanceID: n.instance, Kind: n.kind, Deadline: n.deadline})
			}
		case n.at.IsZero():
		case age >= noticeLife, n.group == "" && err == nil && age >= strangerLife:
			w.throwAway()
			done = append(done, messages[i])
		}
	}
	return notices, done, err
}

// findHomes asks for the groups of instances that no look has shown yet.
func (w *watch) findHomes(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	out, err := send(ctx, w.session, w.scaling.DescribeAutoScalingInstances, &autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: ids})
	if err != nil {
		return err
	}
	for i := range out.AutoScalingInstances {
		w.homes.add(aws.ToString(out.AutoScalingInstances[i].InstanceId), aws.ToString(out.AutoScalingInstances[i].AutoScalingGroupName))
	}
	return nil
}

// delete deletes messages. One that stays comes again, and is delivered again: that
// an instance is interrupted can be heard twice.
func (w *watch) delete(ctx context.Context, messages []sqstypes.Message) error {
	if len(messages) == 0 {
		return nil
	}
	entries := make([]sqstypes.DeleteMessageBatchRequestEntry, len(messages))
	for i := range messages {
		entries[i] = sqstypes.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: messages[i].ReceiptHandle}
	}
	_, err := sendNow(ctx, w.session, w.queue.DeleteMessageBatch, &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(w.url), Entries: entries})
	return err
}

// throwAway counts a message that nobody could use, and says so now and then. What it
// says is not repeated: anybody who may send to the queue could fill the log.
func (w *watch) throwAway() {
	w.useless++
	if now := w.now(); w.said.IsZero() || now.Sub(w.said) >= sayEvery {
		w.said = now
		fmt.Fprintf(os.Stderr, "ec2asg: notices_queue: %d messages so far were no notice or too old, and were deleted\n", w.useless)
	}
}

// trouble tells of a failure, the first in a row, and waits: longer each time, and
// never as long as somebody else.
func (w *watch) trouble(ctx context.Context, err error) {
	if w.failures++; w.failures == 1 {
		fmt.Fprintf(os.Stderr, "ec2asg: notices_queue: %v\n", err)
	}
	longest := min(watchPause<<min(w.failures-1, 10), watchMaxPause)
	timer := time.NewTimer(longest/2 + rand.N(longest/2)) //nolint:gosec // jitter
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
