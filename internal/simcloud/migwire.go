package simcloud

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// migWire carries the provider's requests to the stand-in, and adds the labels that
// somebody has put on single instances: the stand-in knows those of groups only.
type migWire struct{ group *migGroup }

// RoundTrip implements [http.RoundTripper].
func (w migWire) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := w.group.stub.Transport().RoundTrip(r)
	if err != nil || len(w.group.births.kept) == 0 || !strings.HasSuffix(r.URL.Path, "/instances") {
		return answer, err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if body, err = w.label(body); err != nil {
		return nil, err
	}
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return answer, nil
}

// label adds the label to those that have it.
func (w migWire) label(body []byte) ([]byte, error) {
	var list map[string]any
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("a list of instances: %w", err)
	}
	items, _ := list["items"].([]any)
	for _, item := range items {
		vm, _ := item.(map[string]any)
		if id, _ := vm["id"].(string); w.group.births.isKept(id) {
			vm["labels"] = map[string]any{keepTag: ""}
		}
	}
	return json.Marshal(list)
}
