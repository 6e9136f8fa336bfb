package route

import (
	"encoding/json"
	"fmt"
)

// WithoutLastUpdate is the body of a job request without what its runner last knew of
// the queue: GitLab answers it at once then, and doesn't hold it until there is a job.
func WithoutLastUpdate(body []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("%w: it isn't a JSON object", ErrMalformed)
	}
	if _, has := fields["last_update"]; !has {
		return body, nil
	}
	delete(fields, "last_update")
	short, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return short, nil
}
