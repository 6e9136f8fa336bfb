package pluginsdk

import (
	"net/http"
	"strconv"
	"time"
)

// maxRetryAfter bounds what a cloud can ask for: more is a mistake of its clock.
const maxRetryAfter = 24 * time.Hour

// KindOfHTTP classifies a failure by its HTTP status code alone, for what the
// cloud's own error codes leave open. 404 is KindInvalid as other mistakes of the
// caller are: only the provider knows whether it asked for a group.
func KindOfHTTP(status int) Kind {
	switch {
	case status == http.StatusTooManyRequests:
		return KindThrottled
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return KindAuth
	case status == http.StatusRequestTimeout:
		return KindTransient
	case status >= 400 && status < 500:
		return KindInvalid
	default:
		return KindTransient
	}
}

// RetryAfter reads the header of that name in its form with seconds; 0 for none.
// It is for [Error].RetryAfter.
func RetryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseInt(h.Get("Retry-After"), 10, 32)
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}
