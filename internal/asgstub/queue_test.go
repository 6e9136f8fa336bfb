package asgstub

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
)

// What a queue does:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html

type inbox struct {
	t   *testing.T
	api *sqs.Client
	url string
}

func newInbox(t *testing.T, c *http.Client, endpoint, name string) inbox {
	api := sqs.New(sqs.Options{
		Region: DefaultRegion, BaseEndpoint: &endpoint, HTTPClient: c, RetryMaxAttempts: 1, Credentials: newClient(c, endpoint).Options().Credentials,
	})
	out, err := api.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: &name})
	require.NoError(t, err)
	return inbox{t, api, *out.QueueUrl}
}

func (b inbox) receive(n int32, wait int32) []types.Message {
	b.t.Helper()
	out, err := b.api.ReceiveMessage(b.t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: &b.url, MaxNumberOfMessages: n, WaitTimeSeconds: wait, VisibilityTimeout: 30,
	})
	require.NoError(b.t, err)
	return out.Messages
}

func (b inbox) remove(m types.Message) {
	b.t.Helper()
	_, err := b.api.DeleteMessage(b.t.Context(), &sqs.DeleteMessageInput{QueueUrl: &b.url, ReceiptHandle: m.ReceiptHandle})
	require.NoError(b.t, err)
}

func TestInterruption(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{}, GroupConfig{Name: "ci", Max: 5, Desired: 2, SpotShare: 1, NewInstancesProtected: true})
	w.AddQueue("notices", EventInterruption, EventRebalance)
	b := newInbox(t, w.Client(), "http://stub.invalid", "notices")
	id := w.ids("ci")[0]
	require.True(t, w.Interrupt(id, DefaultNotice))
	got := b.receive(10, 0)
	require.Len(t, got, 1)
	var event struct {
		Source string
		Kind   string `json:"detail-type"`
		Detail map[string]string
	}
	require.NoError(t, json.Unmarshal([]byte(*got[0].Body), &event))
	require.Equal(t, "aws.ec2", event.Source)
	require.Equal(t, EventInterruption, event.Kind)
	require.Equal(t, map[string]string{"instance-id": id, "instance-action": "terminate"}, event.Detail)
	w.pass(DefaultNotice - 1)
	require.Empty(t, w.ended())
	w.pass(1)
	require.Equal(t, map[string]Cause{id: Interruption}, w.ended())
	require.Equal(t, 2, w.Live("ci"), "it is replaced")
	require.False(t, w.Interrupt(id, 0), "it is gone")
}

func TestMessagesComeBackUntilDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	w.AddQueue("q")
	b := newInbox(t, w.Client(), "http://stub.invalid", "q")
	require.True(t, w.SendMessage("q", "one"))
	first := b.receive(10, 0)
	require.Len(t, first, 1)
	require.Empty(t, b.receive(10, 20), "hidden; and on a clock of ours a long poll does not wait")
	w.pass(30 * time.Second)
	second := b.receive(10, 0)
	require.Len(t, second, 1)
	b.remove(first[0])
	require.Equal(t, 1, w.Messages("q"), "an old handle deletes nothing")
	b.remove(second[0])
	require.Zero(t, w.Messages("q"))

	for i := range 25 {
		w.SendMessage("q", strconv.Itoa(i))
	}
	require.Len(t, b.receive(10, 0), 10)
	require.Len(t, b.receive(10, 0), 10)
	require.Len(t, b.receive(10, 0), 5)
	_, err := b.api.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &b.url, MaxNumberOfMessages: 11})
	require.Equal(t, "InvalidParameterValue", code(err))
	_, err = b.api.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String("http://x/1/no")})
	var gone *types.QueueDoesNotExist
	require.ErrorAs(t, err, &gone)
}

func TestLongPollWakesUp(t *testing.T) {
	t.Parallel()
	c := New(Options{})
	c.AddQueue("q")
	srv := httptest.NewServer(c)
	defer srv.Close()
	b := newInbox(t, srv.Client(), srv.URL, "q")
	got := make(chan []types.Message, 1)
	go func() { got <- b.receive(1, 20) }()
	require.Eventually(t, func() bool { return c.CountOf("ReceiveMessage") == 1 }, time.Minute, time.Millisecond)
	c.SendMessage("q", "wake up")
	select {
	case m := <-got:
		require.Len(t, m, 1)
		require.Equal(t, "wake up", *m[0].Body)
	case <-time.After(time.Minute):
		t.Fatal("it slept on")
	}
	require.Equal(t, 1, c.CountOf("ReceiveMessage"), "one call, however often it looked")
	require.Empty(t, b.receive(1, 1), "and it ends with its time")
}

func TestHookTellsItsQueue(t *testing.T) {
	t.Parallel()
	cfg := hooked(Terminating, 300, Continue)
	cfg.Hooks[0].NotificationTargetARN = "arn:aws:sqs:us-east-1:123456789012:q"
	w := newWorld(t, Options{}, cfg)
	w.AddQueue("q", EventInterruption)
	id := w.ids("ci")[0]
	require.NoError(t, w.kill(id, true))
	var body map[string]string
	got := newInbox(t, w.Client(), "http://stub.invalid", "q").receive(10, 0)
	require.Len(t, got, 1)
	require.NoError(t, json.Unmarshal([]byte(*got[0].Body), &body))
	require.Equal(t, id, body["EC2InstanceId"])
	require.Len(t, body["LifecycleActionToken"], 36)
	require.Equal(t, Terminating, body["LifecycleTransition"])
}
