package gcemig

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/googleapi"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// maxMessageBytes bounds what is repeated of the cloud's words [bytes].
const maxMessageBytes = 500

// throttleReasons are what Google says with 403 when it means "too many calls"
// (compute/docs/api-rate-limits).
var throttleReasons = []string{"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"}

// codeKinds classifies what a request, an operation or an attempt to create an
// instance ended with. Sources: compute/docs/troubleshooting/troubleshooting-vm-creation
// and …/troubleshooting-resource-availability (quota, exhausted pools), the service
// error catalog compute/docs/reference/rest (PERMISSIONS_ERROR, INVALID_FIELD_VALUE),
// and the codes that the Kubernetes cluster-autoscaler tells apart for groups like
// these (RESOURCE_POOL_EXHAUSTED, IP_SPACE_EXHAUSTED, CONDITION_NOT_MET). Any other
// may work next time.
//
// Addresses count as capacity: they are back when instances end, and another pool
// may have a larger subnet. A lack of permissions is a mistake of the group's
// template or service agent here, not of our credentials: nothing works until
// somebody changes it.
var codeKinds = map[string]pluginsdk.Kind{
	"QUOTA_EXCEEDED":                            pluginsdk.KindQuota,
	"quotaExceeded":                             pluginsdk.KindQuota,
	"ZONE_RESOURCE_POOL_EXHAUSTED":              pluginsdk.KindCapacity,
	"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": pluginsdk.KindCapacity,
	"RESOURCE_POOL_EXHAUSTED":                   pluginsdk.KindCapacity,
	"IP_SPACE_EXHAUSTED":                        pluginsdk.KindCapacity,
	"PERMISSIONS_ERROR":                         pluginsdk.KindInvalid,
	"RESOURCE_NOT_FOUND":                        pluginsdk.KindInvalid,
	"INVALID_FIELD_VALUE":                       pluginsdk.KindInvalid,
	"INVALID_USAGE":                             pluginsdk.KindInvalid,
	"CONDITION_NOT_MET":                         pluginsdk.KindInvalid,
	"resourceNotReady":                          pluginsdk.KindTransient,
}

// kindOfCode is the kind of one of Google's codes.
func kindOfCode(code string) pluginsdk.Kind {
	if k, ok := codeKinds[code]; ok {
		return k
	}
	return pluginsdk.KindTransient
}

// classify makes an error of the contract. What is not known may work next time.
func (c *clients) classify(err error) error {
	var classified *pluginsdk.Error
	if errors.As(err, &classified) { // the budget's
		return classified
	}
	var api *googleapi.Error
	if !errors.As(err, &api) {
		return pluginsdk.Errorf(pluginsdk.KindTransient, "%w", err)
	}
	e := &pluginsdk.Error{Kind: kind(api), Message: cut(api.Message), RetryAfter: pluginsdk.RetryAfter(api.Header), Cause: err}
	if e.Kind == pluginsdk.KindThrottled {
		c.budget.Throttled(e.RetryAfter)
	}
	return e
}

func kind(api *googleapi.Error) pluginsdk.Kind {
	throttled := slices.ContainsFunc(api.Errors, func(item googleapi.ErrorItem) bool {
		return slices.Contains(throttleReasons, item.Reason)
	})
	known := slices.IndexFunc(api.Errors, func(item googleapi.ErrorItem) bool { return codeKinds[item.Reason] != "" })
	switch code := api.Code; {
	case throttled:
		return pluginsdk.KindThrottled
	case known >= 0:
		return codeKinds[api.Errors[known].Reason]
	case code == http.StatusNotFound:
		return pluginsdk.KindNotFound
	case code == http.StatusConflict, code == http.StatusPreconditionFailed:
		return pluginsdk.KindTransient // another operation on the group came first
	default:
		return pluginsdk.KindOfHTTP(code)
	}
}

// operationError is what an operation that is done ended with; nil for success.
func operationError(op *computepb.Operation) error {
	for _, e := range op.GetError().GetErrors() {
		return &pluginsdk.Error{Kind: kindOfCode(e.GetCode()), Message: cut(e.GetCode() + ": " + e.GetMessage())}
	}
	if status := int(op.GetHttpErrorStatusCode()); status >= http.StatusBadRequest {
		return &pluginsdk.Error{Kind: pluginsdk.KindOfHTTP(status), Message: cut(op.GetHttpErrorMessage())}
	}
	return nil
}

// unconfirmed is the error for a write that the cloud has accepted and of which
// nothing more is known. It is never one that says that nothing was carried out,
// whatever the question about it ended with.
func unconfirmed(what string, err error) error {
	if err == nil {
		return pluginsdk.Errorf(pluginsdk.KindTransient, "%s was accepted and has not shown an effect yet", what)
	}
	return &pluginsdk.Error{
		Kind: pluginsdk.KindTransient, Message: cut(what + " was accepted, and then: " + err.Error()), Cause: err,
	}
}

func cut(message string) string {
	if len(message) <= maxMessageBytes {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessageBytes], "") + "…" // not half a character
}

func errNotFound(name string) error {
	return pluginsdk.Errorf(pluginsdk.KindNotFound, "there is no managed instance group %q here, or it is not configured", name)
}
