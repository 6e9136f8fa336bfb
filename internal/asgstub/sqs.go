package asgstub

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const codeNoQueue = "QueueDoesNotExist"

func (x *exchange) fields() *fields { return fieldsOf(x.in, "") }

// queue is the queue that a call is about: the last part of its URL.
func (x *exchange) queue(f *fields) (*queue, error) {
	url := f.need("QueueUrl")
	if err := f.done(); err != nil {
		return nil, err
	}
	q := x.c.mu.queues[url[strings.LastIndexByte(url, '/')+1:]]
	if q == nil {
		return nil, noQueue()
	}
	return q, nil
}

func noQueue() *failure {
	return &failure{code: codeNoQueue, message: "The specified queue does not exist.", status: 400}
}

func (x *exchange) queueURL(q *queue) string {
	return fmt.Sprintf("http://%s/%s/%s", x.host, x.c.opts.AccountID, q.name)
}

// receiveMessage waits for a message as long as the call says (long polling):
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
func receiveMessage(x *exchange) error {
	f := x.fields()
	n := f.int("MaxNumberOfMessages", 1, 1, maxBatch)
	hide := f.int("VisibilityTimeout", int(defaultVisibility/time.Second), 0, int(maxVisibility/time.Second))
	wait := f.int("WaitTimeSeconds", 0, 0, int(maxWait/time.Second))
	system := slices.Concat(f.texts("AttributeNames"), f.texts("MessageSystemAttributeNames"))
	f.texts("MessageAttributeNames") // messages of the stand-in have none
	q, err := x.queue(f)
	if err != nil {
		return err
	}
	got := x.c.receive(q, n, time.Duration(hide)*time.Second)
	x.wait = 0
	if len(got) == 0 {
		x.wait = time.Duration(wait) * time.Second
		x.out = map[string]any{}
		return nil
	}
	list := make([]any, len(got))
	for i, m := range got {
		list[i] = m.document(system)
	}
	x.out = map[string]any{"Messages": list}
	return nil
}

func (m *message) document(system []string) map[string]any {
	doc := map[string]any{"MessageId": m.id, "ReceiptHandle": m.receipt, "MD5OfBody": sum(m.body), "Body": m.body}
	all := map[string]string{
		"SentTimestamp":                    strconv.FormatInt(m.sent.UnixMilli(), 10),
		"ApproximateReceiveCount":          strconv.Itoa(m.received),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(m.first.UnixMilli(), 10),
	}
	attributes := make(map[string]any)
	for name, value := range all {
		if slices.Contains(system, name) || slices.Contains(system, "All") {
			attributes[name] = value
		}
	}
	if len(attributes) > 0 {
		doc["Attributes"] = attributes
	}
	return doc
}

// deleteMessage: a handle that is too old is no error.
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html
func deleteMessage(x *exchange) error {
	f := x.fields()
	receipt := f.need("ReceiptHandle")
	q, err := x.queue(f)
	if err != nil {
		return err
	}
	q.remove(receipt)
	return nil
}

// deleteMessageBatch:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessageBatch.html
func deleteMessageBatch(x *exchange) error {
	f := x.fields()
	entries := member(f, "Entries", []any(nil))
	q, err := x.queue(f)
	switch {
	case err != nil:
		return err
	case len(entries) == 0:
		return &failure{code: "EmptyBatchRequest", message: "There should be at least one DeleteMessageBatchRequestEntry in the request.", status: 400}
	case len(entries) > maxBatch:
		return &failure{code: "TooManyEntriesInBatchRequest", message: fmt.Sprintf("Maximum number of entries per request are %d. You have sent %d.", maxBatch, len(entries)), status: 400}
	}
	receipts := make(map[string]string, len(entries))
	done := make([]any, len(entries))
	for i, e := range entries {
		ef := fieldsOf(e, "Entries.")
		id, receipt := ef.need("Id"), ef.need("ReceiptHandle")
		if err := ef.done(); err != nil {
			return err
		}
		if _, twice := receipts[id]; twice {
			return &failure{code: "BatchEntryIdsNotDistinct", message: "Id " + id + " repeated.", status: 400}
		}
		receipts[id], done[i] = receipt, map[string]any{"Id": id}
	}
	for _, receipt := range receipts {
		q.remove(receipt)
	}
	x.out = map[string]any{"Successful": done, "Failed": []any{}}
	return nil
}

// changeVisibility:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html
func changeVisibility(x *exchange) error {
	f := x.fields()
	receipt := f.need("ReceiptHandle")
	hide := f.int("VisibilityTimeout", 0, 0, int(maxVisibility/time.Second))
	q, err := x.queue(f)
	if err != nil {
		return err
	}
	m := q.find(receipt)
	switch {
	case m == nil:
		return &failure{code: "ReceiptHandleIsInvalid", message: "The input receipt handle is invalid.", status: 400}
	case !m.hidden.After(x.c.mu.now):
		return &failure{code: "MessageNotInflight", message: "The message is not in flight.", status: 400}
	}
	m.hidden = x.c.mu.now.Add(time.Duration(hide) * time.Second)
	x.c.signal()
	return nil
}

// getQueueURL:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueUrl.html
func getQueueURL(x *exchange) error {
	f := x.fields()
	name := f.need("QueueName")
	owner := f.text("QueueOwnerAWSAccountId")
	if err := f.done(); err != nil {
		return err
	}
	q := x.c.mu.queues[name]
	if q == nil || owner != "" && owner != x.c.opts.AccountID {
		return noQueue()
	}
	x.out = map[string]any{"QueueUrl": x.queueURL(q)}
	return nil
}

// getQueueAttributes:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html
func getQueueAttributes(x *exchange) error {
	f := x.fields()
	names := f.texts("AttributeNames")
	q, err := x.queue(f)
	if err != nil {
		return err
	}
	visible := 0
	for _, m := range q.messages {
		if !m.hidden.After(x.c.mu.now) {
			visible++
		}
	}
	all := map[string]string{
		"QueueArn":                              fmt.Sprintf("arn:aws:sqs:%s:%s:%s", x.c.region(), x.c.opts.AccountID, q.name),
		"ApproximateNumberOfMessages":           strconv.Itoa(visible),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(len(q.messages) - visible),
		"VisibilityTimeout":                     strconv.Itoa(int(defaultVisibility / time.Second)),
		"MessageRetentionPeriod":                strconv.Itoa(int(messageAge / time.Second)),
	}
	out := make(map[string]any)
	for name, value := range all {
		if slices.Contains(names, name) || slices.Contains(names, "All") {
			out[name] = value
		}
	}
	x.out = map[string]any{"Attributes": out}
	return nil
}

// sendMessage:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
func sendMessage(x *exchange) error {
	f := x.fields()
	body := f.need("MessageBody")
	delay := f.int("DelaySeconds", 0, 0, 900)
	q, err := x.queue(f)
	switch {
	case err != nil:
		return err
	case len(body) > maxMessageSize:
		return &failure{code: "InvalidParameterValue", message: "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.", status: 400}
	}
	m := x.c.send(q, body, time.Duration(delay)*time.Second)
	x.out = map[string]any{"MD5OfMessageBody": sum(body), "MessageId": m.id}
	return nil
}

// createQueue makes a queue that gets every event:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html
func createQueue(x *exchange) error {
	f := x.fields()
	name := f.need("QueueName")
	if err := f.done(); err != nil {
		return err
	}
	q := x.c.mu.queues[name]
	if q == nil {
		q = &queue{name: name, events: allEvents}
		x.c.mu.queues[name] = q
	}
	x.out = map[string]any{"QueueUrl": x.queueURL(q)}
	return nil
}
