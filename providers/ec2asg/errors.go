package ec2asg

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// kinds are the error codes that mean something to Spillway: those of the Auto
// Scaling API, https://docs.aws.amazon.com/autoscaling/ec2/APIReference/CommonErrors.html
// and the operations' own; of EC2,
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html; and
// those that all AWS APIs share.
var kinds = map[string]pluginsdk.Kind{
	"Throttling":                  pluginsdk.KindThrottled,
	"ThrottlingException":         pluginsdk.KindThrottled,
	"RequestLimitExceeded":        pluginsdk.KindThrottled,
	"TooManyRequestsException":    pluginsdk.KindThrottled,
	"RequestThrottled":            pluginsdk.KindThrottled, // SQS
	"AccessDenied":                pluginsdk.KindAuth,
	"AccessDeniedException":       pluginsdk.KindAuth,
	"AuthFailure":                 pluginsdk.KindAuth,
	"ExpiredToken":                pluginsdk.KindAuth,
	"ExpiredTokenException":       pluginsdk.KindAuth,
	"IncompleteSignature":         pluginsdk.KindAuth,
	"InvalidClientTokenId":        pluginsdk.KindAuth,
	"MissingAuthenticationToken":  pluginsdk.KindAuth,
	"NotAuthorized":               pluginsdk.KindAuth,
	"OptInRequired":               pluginsdk.KindAuth,
	"SignatureDoesNotMatch":       pluginsdk.KindAuth,
	"UnauthorizedOperation":       pluginsdk.KindAuth,
	"UnrecognizedClientException": pluginsdk.KindAuth,
	"InvalidAction":               pluginsdk.KindInvalid,
	"ValidationError":             pluginsdk.KindInvalid,
	"LimitExceeded":               pluginsdk.KindQuota,
	"InvalidNextToken":            pluginsdk.KindTransient, // the pages changed under us
	"ResourceContention":          pluginsdk.KindTransient,
	// The group is busy with another change. Waiting for it would hold a pool up
	// behind one instance that never comes up: ask again at the next tick.
	"ScalingActivityInProgress": pluginsdk.KindTransient,
	"RequestExpired":            pluginsdk.KindTransient, // of the clocks
}

// classify makes an error of the contract. What is not known may work next time.
func classify(err error) *pluginsdk.Error {
	var own *pluginsdk.Error
	if errors.As(err, &own) {
		return own
	}
	kind, message := pluginsdk.KindTransient, err.Error()
	var response *smithyhttp.ResponseError
	hasResponse := errors.As(err, &response)
	if hasResponse {
		kind = pluginsdk.KindOfHTTP(response.HTTPStatusCode())
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		message = api.ErrorCode() + ": " + api.ErrorMessage()
		if known, ok := kinds[api.ErrorCode()]; ok {
			kind = known
		}
		if says(err, "AutoScalingGroup name not found") {
			kind = pluginsdk.KindNotFound
		}
	}
	classified := &pluginsdk.Error{Kind: kind, Message: message, Cause: err}
	if hasResponse && response.Response != nil {
		classified.RetryAfter = pluginsdk.RetryAfter(response.Response.Header)
	}
	return classified
}

// noRight are the codes with which AWS says that we may not do what was asked.
var noRight = []string{"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}

// denied reports whether err is AWS's word that we lack a right. Credentials that have
// expired or can't be had for now are an ErrAuth too, and say nothing of any right.
func denied(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && slices.Contains(noRight, api.ErrorCode())
}

// noCredentials is the error of a call that was not made, since there was nothing to sign
// it with. What AWS said to the question for them is only repeated: it is about another
// call.
func noCredentials(ctx context.Context, err error) *pluginsdk.Error {
	if ctx.Err() != nil { // they were asked for, and did not come in time
		return &pluginsdk.Error{Kind: pluginsdk.KindTransient, Message: "not sent: no AWS credentials yet: " + ctx.Err().Error(), Cause: ctx.Err()}
	}
	return pluginsdk.Errorf(pluginsdk.KindAuth, "no AWS credentials: %v", err)
}

// says reports whether err is a ValidationError with such a text. The Auto Scaling
// API has that one code for most of what can be wrong; only the text tells them
// apart.
func says(err error, text string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), text)
}

// Texts of ValidationErrors that are told apart, as people quote them in public
// issues; the API reference has none of them. If one is changed, the error is an
// ErrInvalid, which is safe and loud.
const (
	textNoInstance = "No managed instance found for instance ID"
	textNoWait     = "No active Lifecycle Action found"
)
