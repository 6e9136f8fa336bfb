package asgstub

import (
	"crypto/md5" //nolint:gosec // SQS answers with it
	"encoding/hex"
	"slices"
	"time"
)

// Limits of a queue:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
const (
	maxBatch          = 10
	maxWait           = 20 * time.Second
	maxVisibility     = 12 * time.Hour
	defaultVisibility = 30 * time.Second
	// messageAge is how long a queue keeps a message, the service's default.
	messageAge = 4 * 24 * time.Hour
	// maxMessages bounds the messages in a queue, the newest.
	maxMessages = 100_000
	// maxMessageSize bounds one message [bytes].
	maxMessageSize = 1 << 20
)

// queue is an SQS queue.
type queue struct {
	name     string
	events   []string // detail types that EventBridge sends to it
	messages []*message
	receipts int
}

type message struct {
	id       string
	body     string
	sent     time.Time
	hidden   time.Time // until then
	receipt  string    // of the last receive
	received int
	first    time.Time
}

// AddQueue adds an SQS queue that gets the events of EventBridge with the given
// detail types (EventInterruption …); none = every one. A queue of the same name
// is replaced. Its URL is the stand-in's address, the account and the name.
func (c *Cloud) AddQueue(name string, events ...string) {
	if len(events) == 0 {
		events = allEvents
	}
	c.do(func() { c.mu.queues[name] = &queue{name: name, events: events} })
}

// SendMessage puts a message into a queue; ok is false if there is none of that name.
func (c *Cloud) SendMessage(name, body string) (ok bool) {
	c.do(func() {
		q := c.mu.queues[name]
		if ok = q != nil; ok {
			c.send(q, body, 0)
		}
	})
	return ok
}

// Messages is the number of messages in a queue that nobody deleted.
func (c *Cloud) Messages(name string) (n int) {
	c.do(func() {
		if q := c.mu.queues[name]; q != nil {
			n = len(q.messages)
		}
	})
	return n
}

func (c *Cloud) send(q *queue, body string, delay time.Duration) *message {
	m := &message{id: uuid(c.mu.rng), body: body, sent: c.mu.now, hidden: c.mu.now.Add(delay)}
	q.messages = append(q.messages, m)
	q.messages = slices.Delete(q.messages, 0, max(0, len(q.messages)-maxMessages))
	c.signal()
	return m
}

// receive takes up to n visible messages and hides them.
func (c *Cloud) receive(q *queue, n int, hide time.Duration) (got []*message) {
	now := c.mu.now
	q.messages = slices.DeleteFunc(q.messages, func(m *message) bool { return now.Sub(m.sent) >= messageAge })
	for _, m := range q.messages {
		if len(got) == n {
			break
		}
		if m.hidden.After(now) {
			continue
		}
		q.receipts++
		m.receipt = uuid(c.mu.rng)
		m.hidden = now.Add(hide)
		if m.received++; m.received == 1 {
			m.first = now
		}
		got = append(got, m)
	}
	return got
}

// find is the message that a receipt handle is for; a later receive makes the
// handles before it void.
func (q *queue) find(receipt string) *message {
	at := slices.IndexFunc(q.messages, func(m *message) bool { return m.receipt != "" && m.receipt == receipt })
	if at < 0 {
		return nil
	}
	return q.messages[at]
}

func (q *queue) remove(receipt string) {
	q.messages = slices.DeleteFunc(q.messages, func(m *message) bool { return m.receipt != "" && m.receipt == receipt })
}

func sum(body string) string {
	s := md5.Sum([]byte(body)) //nolint:gosec // SQS answers with it
	return hex.EncodeToString(s[:])
}
