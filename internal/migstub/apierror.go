package migstub

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// apiError is an error as the API answers it (cloud.google.com/apis/design/errors,
// the HTTP mapping).
type apiError struct {
	status     int
	reason     string
	message    string
	retryAfter time.Duration
}

func (e *apiError) Error() string { return e.message }

func errorf(status int, reason, format string, args ...any) *apiError {
	return &apiError{status: status, reason: reason, message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *apiError {
	return errorf(http.StatusBadRequest, "invalid", format, args...)
}

func notFound(resource string) *apiError {
	return errorf(http.StatusNotFound, "notFound", "The resource '%s' was not found", resource)
}

// tooMany is what the API says over a rate quota: 403 with this reason
// (compute/docs/api-rate-limits); load balancers in front of it say 429.
func tooMany(status int) *apiError {
	return errorf(status, "rateLimitExceeded",
		"Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'compute.googleapis.com'.")
}

// errorBody is the body of an error.
type errorBody struct {
	Error errorStatus `json:"error"`
}

type errorStatus struct {
	Code    int         `json:"code"`
	Message string      `json:"message"`
	Errors  []errorItem `json:"errors"`
}

type errorItem struct {
	Message string `json:"message"`
	Domain  string `json:"domain"`
	Reason  string `json:"reason"`
}

func (e *apiError) write(w http.ResponseWriter) {
	if e.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(e.retryAfter.Seconds())))
	}
	domain := "global"
	if e.reason == "rateLimitExceeded" || e.reason == "userRateLimitExceeded" {
		domain = "usageLimits"
	}
	writeJSON(w, e.status, errorBody{errorStatus{e.status, e.message, []errorItem{{e.message, domain, e.reason}}}})
}
