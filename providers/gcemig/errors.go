package gcemig

import (
	"errors"
	"net/http"
	"slices"

	"google.golang.org/api/googleapi"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// throttleReasons are what Google says with 403 when it means "too many calls".
var throttleReasons = []string{"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "RATE_LIMIT_EXCEEDED"}

// classify makes an error of the contract. What is not known may work next time.
func classify(err error) error {
	var api *googleapi.Error
	if !errors.As(err, &api) {
		return pluginsdk.Errorf(pluginsdk.KindTransient, "%w", err)
	}
	return &pluginsdk.Error{Kind: kind(api), Message: api.Message, RetryAfter: pluginsdk.RetryAfter(api.Header), Cause: err}
}

func kind(api *googleapi.Error) pluginsdk.Kind {
	throttled := slices.ContainsFunc(api.Errors, func(item googleapi.ErrorItem) bool {
		return slices.Contains(throttleReasons, item.Reason)
	})
	switch code := api.Code; {
	case code == http.StatusForbidden && throttled:
		return pluginsdk.KindThrottled
	case code == http.StatusNotFound:
		return pluginsdk.KindNotFound
	default:
		return pluginsdk.KindOfHTTP(code)
	}
}
