package ec2asg

import (
	"errors"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// kinds are the error codes of the Auto Scaling API, and those that all AWS APIs
// share, that mean something to Spillway.
var kinds = map[string]pluginsdk.Kind{
	"Throttling":                  pluginsdk.KindThrottled,
	"ThrottlingException":         pluginsdk.KindThrottled,
	"RequestLimitExceeded":        pluginsdk.KindThrottled,
	"TooManyRequestsException":    pluginsdk.KindThrottled,
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
	"InvalidNextToken":            pluginsdk.KindTransient, // the pages changed under us
	"ResourceContention":          pluginsdk.KindTransient,
}

// classify makes an error of the contract. What is not known may work next time.
func classify(err error) error {
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
	}
	classified := &pluginsdk.Error{Kind: kind, Message: message, Cause: err}
	if hasResponse && response.Response != nil {
		classified.RetryAfter = pluginsdk.RetryAfter(response.Response.Header)
	}
	return classified
}
