package ec2asg

import (
	"errors"
	"net/http"
	"strconv"
	"time"

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
		kind = byStatus(response.HTTPStatusCode())
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
		classified.RetryAfter = retryAfter(response.Response.Header)
	}
	return classified
}

func byStatus(code int) pluginsdk.Kind {
	switch {
	case code == http.StatusTooManyRequests:
		return pluginsdk.KindThrottled
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return pluginsdk.KindAuth
	case code >= 400 && code < 500:
		return pluginsdk.KindInvalid
	default:
		return pluginsdk.KindTransient
	}
}

// retryAfter reads the header in its form with seconds, the only one that AWS uses.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
