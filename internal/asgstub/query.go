package asgstub

import (
	"net/http"
	"slices"
	"strconv"
)

// queryWire is the protocol of Auto Scaling, STS and, with differences, EC2: a form
// in, XML out.
// https://smithy.io/2.0/aws/protocols/aws-query-protocol.html
// https://smithy.io/2.0/aws/protocols/aws-ec2-query-protocol.html
type queryWire struct{}

var namespaces = map[string]string{
	serviceASG: "http://autoscaling.amazonaws.com/doc/2011-01-01/",
	serviceEC2: "http://ec2.amazonaws.com/doc/2016-11-15/",
	serviceSTS: "https://sts.amazonaws.com/doc/2011-06-15/",
}

func (queryWire) answer(w http.ResponseWriter, x *exchange, f *failure) {
	status := http.StatusOK
	var head, tail xmlWriter
	switch {
	case f != nil:
		status = f.status
		x.w.b = nil // it may have got half-way
		x.writeFailure(&head, f)
	case x.service == serviceEC2:
		head.openRoot(x.op+"Response", namespaces[x.service])
		head.text("requestId", x.id)
		tail.close(x.op + "Response")
	default:
		head.openRoot(x.op+"Response", namespaces[x.service])
		if !slices.Contains(silent, x.op) {
			head.open(x.op + "Result")
			tail.close(x.op + "Result")
		}
		tail.in("ResponseMetadata", func() { tail.text("RequestId", x.id) })
		tail.close(x.op + "Response")
	}
	w.Header().Set("Content-Type", "text/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(head.b)+len(x.w.b)+len(tail.b)))
	w.WriteHeader(status)
	for _, part := range [][]byte{head.b, x.w.b, tail.b} {
		_, _ = w.Write(part)
	}
}

func (x *exchange) writeFailure(out *xmlWriter, f *failure) {
	if x.service == serviceEC2 {
		out.in("Response", func() {
			out.in("Errors", func() {
				out.in("Error", func() { out.text("Code", f.code); out.text("Message", f.message) })
			})
			out.text("RequestID", x.id)
		})
		return
	}
	out.openRoot("ErrorResponse", namespaces[x.service])
	out.in("Error", func() {
		out.text("Type", blame(f.status))
		out.text("Code", f.code)
		out.text("Message", f.message)
	})
	out.text("RequestId", x.id)
	out.close("ErrorResponse")
}

func blame(status int) string {
	if status < http.StatusInternalServerError {
		return "Sender"
	}
	return "Receiver"
}

// silent are the operations without a result.
var silent = []string{
	"CreateAutoScalingGroup", "CreateOrUpdateTags", "DeleteAutoScalingGroup", "DeleteTags", "ResumeProcesses",
	"SetDesiredCapacity", "SetInstanceHealth", "SuspendProcesses", "UpdateAutoScalingGroup",
}
