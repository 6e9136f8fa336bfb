package asgstub

import (
	"cmp"
	"fmt"
	"net/http"
)

// failure is an error as a service answers it.
type failure struct {
	code    string
	message string
	status  int
	hang    bool // no answer at all
}

func (f *failure) Error() string { return f.code + ": " + f.message }

// The codes that are common to the operations:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/CommonErrors.html
const (
	codeValidation    = "ValidationError"
	codeThrottling    = "Throttling"
	codeInvalidAction = "InvalidAction"
	codeMissingAuth   = "MissingAuthenticationToken"
	codeSignature     = "SignatureDoesNotMatch"
	codeMalformed     = "MalformedInput"
	codeToken         = "InvalidNextToken" //nolint:gosec // the code of an error
)

func invalid(format string, args ...any) *failure {
	return &failure{code: codeValidation, message: fmt.Sprintf(format, args...), status: http.StatusBadRequest}
}

// planned is the message and status of a code where a CallFault gives none.
type planned struct {
	message string
	status  int
}

// callTexts are errors that calls are answered with. The statuses are those of the
// services' models; a code that is not here is a 400.
var callTexts = map[string]planned{
	codeThrottling:              {"Rate exceeded", http.StatusBadRequest},
	"RequestLimitExceeded":      {"Request limit exceeded.", http.StatusServiceUnavailable},
	"ScalingActivityInProgress": {"Scaling activity 0ea5f0da-97c6-1d64-5127-43e061c16819 is in progress and blocks this action", http.StatusBadRequest},
	"ResourceContention":        {"You already have a pending update to an Auto Scaling resource.", http.StatusInternalServerError},
	"AccessDenied":              {"", http.StatusForbidden},
	"UnauthorizedOperation":     {"You are not authorized to perform this operation.", http.StatusForbidden},
	"ExpiredToken":              {"The security token included in the request is expired", http.StatusForbidden},
	"InvalidClientTokenId":      {"The security token included in the request is invalid.", http.StatusForbidden},
	"OptInRequired":             {"The AWS Access Key Id needs a subscription for the service", http.StatusForbidden},
	"InternalFailure":           {"The request processing has failed because of an unknown error, exception or failure.", http.StatusInternalServerError},
	"ServiceUnavailable":        {"The request has failed due to a temporary failure of the server.", http.StatusServiceUnavailable},
	"RequestExpired":            {"Request has expired.", http.StatusBadRequest},
	codeValidation:              {"You must use a valid fully-formed launch template.", http.StatusBadRequest},
}

// failure is what a call that meets the fault is answered with.
func (l *CallFault) failure(x *exchange) *failure {
	if l.Hang {
		return &failure{code: "RequestTimeout", message: "hung", status: http.StatusGatewayTimeout, hang: true}
	}
	text := callTexts[l.Code]
	if l.Code == codeThrottling && x.service == serviceEC2 {
		// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
		return &failure{code: "RequestLimitExceeded", message: "Request limit exceeded.", status: http.StatusServiceUnavailable}
	}
	if l.Code == "AccessDenied" {
		text.message = fmt.Sprintf("User: arn:aws:iam::%s:user/%s is not authorized to perform: %s:%s", x.c.opts.AccountID, x.who, x.service, x.op)
	}
	return &failure{
		code:    l.Code,
		message: cmp.Or(l.Message, text.message, l.Code),
		status:  cmp.Or(l.Status, text.status, http.StatusBadRequest),
	}
}
